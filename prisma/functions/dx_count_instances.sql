-- Counts instances by name, status and, if asked for, version.
--
-- Returns one row for each, unordered. More than p_exact_up_to instances of a name and status are not counted but
-- estimated, from what ANALYZE has found in a sample of the table: autovacuum repeats it after each tenth of new rows.
-- Then a version that the sample lacks is left out. Without statistics, all are counted.
--
-- Bound: dx_groups_of_instances, and p_exact_up_to index entries of each name and status; by version, as many rows.
-- Locks: none.
CREATE OR REPLACE FUNCTION dx_count_instances(
  p_statuses text[],               -- this and the next one as in dx_groups_of_instances
  p_name text,
  p_by_version boolean, p_exact_up_to bigint
) RETURNS TABLE (out_name text, out_status text, out_version text, out_instances bigint, out_is_estimate boolean)
LANGUAGE plpgsql STABLE
-- settings of the hot path
AS $$
DECLARE
  v_group record;
  v_rows CONSTANT float8 := (SELECT c.reltuples FROM pg_class AS c WHERE c.oid = 'instances'::regclass);
  v_most bigint;
BEGIN
  FOR v_group IN
    SELECT g.out_status AS status, g.out_name AS name FROM dx_groups_of_instances(p_statuses, p_name) AS g
  LOOP
    SELECT count(*) INTO v_most
    FROM (
      SELECT FROM instances AS i
      WHERE i.status = v_group.status AND i.orchestration_name = v_group.name
      LIMIT p_exact_up_to + 1
    ) AS first;
    IF v_most > p_exact_up_to THEN
      RETURN QUERY
      SELECT
        v_group.name, v_group.status, CASE WHEN p_by_version THEN common.version END,
        greatest((sum(common.frequency) * v_rows)::bigint, 1), true
      FROM (
        -- In the order of the columns in the table.
        SELECT
          s.most_common_vals[n][1] AS name, s.most_common_vals[n][2] AS version, s.most_common_vals[n][3] AS status,
          s.most_common_freqs[n] AS frequency
        FROM pg_stats_ext AS s
        CROSS JOIN LATERAL generate_subscripts(s.most_common_vals, 1) AS n
        WHERE s.statistics_schemaname = current_schema() AND s.statistics_name = 'instances_name_version_status_stats'
      ) AS common
      WHERE common.status = v_group.status AND common.name = v_group.name
      GROUP BY 3;
      CONTINUE WHEN FOUND;
    END IF;
    RETURN QUERY
    SELECT v_group.name, v_group.status, CASE WHEN p_by_version THEN i.orchestration_version END, count(*), false
    FROM instances AS i
    WHERE i.status = v_group.status AND i.orchestration_name = v_group.name
    GROUP BY 3;
  END LOOP;
END
$$;
