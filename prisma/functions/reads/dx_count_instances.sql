-- Counts instances by name, status and, if asked for, version.
--
-- Returns one row for each, unordered. Where ANALYZE has found more than p_exact_up_to instances of a name and status,
-- by a sample of the table, that estimate is the answer: autovacuum repeats it after each tenth of new rows. Then a
-- version that the sample lacks is left out. All others are counted.
--
-- Bound: dx_groups_of_instances, and the index entries of names and statuses that are counted; by version, their rows.
-- Locks: none.
CREATE OR REPLACE FUNCTION dx_count_instances(
  p_statuses text[],               -- this and the next one as in dx_groups_of_instances
  p_name text,
  p_by_version boolean, p_exact_up_to bigint
) RETURNS TABLE (out_name text, out_status text, out_version text, out_instances bigint, out_is_estimate boolean)
LANGUAGE plpgsql STABLE
-- settings of the hot path
SET max_parallel_workers_per_gather = 0 -- to start them takes longer than to count
AS $$
DECLARE
  v_group record;
  v_rows CONSTANT float8 := (SELECT c.reltuples FROM pg_class AS c WHERE c.oid = 'instances'::regclass);
  -- [{name, version, status, instances}]
  v_common CONSTANT jsonb := (
    SELECT jsonb_agg(jsonb_build_object(
      -- In the order of the columns in the table.
      'name', s.most_common_vals[n][1], 'version', s.most_common_vals[n][2], 'status', s.most_common_vals[n][3],
      'instances', (s.most_common_freqs[n] * v_rows)::bigint
    ))
    FROM pg_stats_ext AS s
    CROSS JOIN LATERAL generate_subscripts(s.most_common_vals, 1) AS n
    WHERE s.statistics_schemaname = current_schema() AND s.statistics_name = 'instances_name_version_status_stats'
  );
BEGIN
  FOR v_group IN
    SELECT g.out_status AS status, g.out_name AS name, (
        SELECT sum(c.instances) FROM jsonb_to_recordset(v_common) AS c (name text, status text, instances bigint)
        WHERE c.status = g.out_status AND c.name = g.out_name
      ) AS estimate
    FROM dx_groups_of_instances(p_statuses, p_name) AS g
  LOOP
    IF v_group.estimate > p_exact_up_to THEN
      RETURN QUERY
      SELECT v_group.name, v_group.status, CASE WHEN p_by_version THEN c.version END, sum(c.instances)::bigint, true
      FROM jsonb_to_recordset(v_common) AS c (name text, version text, status text, instances bigint)
      WHERE c.status = v_group.status AND c.name = v_group.name
      GROUP BY 3;
    ELSIF p_by_version THEN
      RETURN QUERY
      SELECT v_group.name, v_group.status, i.orchestration_version, count(*), false
      FROM instances AS i
      WHERE i.status = v_group.status AND i.orchestration_name = v_group.name
      GROUP BY 3;
    ELSE
      -- From the index alone. Deleted meanwhile: none.
      RETURN QUERY
      SELECT v_group.name, v_group.status, NULL::text, counted.instances, false
      FROM (
        SELECT count(*) AS instances FROM instances AS i
        WHERE i.status = v_group.status AND i.orchestration_name = v_group.name
      ) AS counted
      WHERE counted.instances > 0;
    END IF;
  END LOOP;
END
$$;
