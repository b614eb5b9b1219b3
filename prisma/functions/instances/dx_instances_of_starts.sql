-- Returns the instances that starts create, with what their first turns say of them.
-- Bound: the starts given. Locks: none.
CREATE OR REPLACE FUNCTION dx_instances_of_starts(
  p_starts dx_start[],
  p_turns dx_turn[]                -- by the same positions; without an execution: the start is stored without it
) RETURNS dx_instance[] LANGUAGE plpgsql
-- settings of the caller
AS $$
BEGIN
  RETURN (
    SELECT array_agg(
      ROW(
        start.instance_id,
        CASE WHEN says.names THEN (first.turn).orchestration_name ELSE start.orchestration_name END,
        CASE WHEN says.names THEN (first.turn).orchestration_version END,
        CASE WHEN says.names THEN (first.turn).parent_instance_id END, (first.turn).custom_status,
        COALESCE((first.turn).sets_custom_status, false)::integer, COALESCE((first.turn).status, 'Running'),
        CASE WHEN (first.turn).status IS NOT NULL THEN (first.turn).output END,
        CASE WHEN (first.turn).status IS NOT NULL THEN (first.turn).text_at END,
        CASE WHEN says.pins THEN (first.turn).major ELSE start.major END,
        CASE WHEN says.pins THEN (first.turn).minor ELSE start.minor END,
        CASE WHEN says.pins THEN (first.turn).patch ELSE start.patch END,
        COALESCE(
          CASE WHEN says.continues THEN (first.turn).next_version END,
          CASE
            WHEN says.names THEN (first.turn).orchestration_version
            -- As after an ack that says any of this: the row has no version, so every one serves the instance.
            WHEN says.pins OR says.continues OR (first.turn).orchestration_name IS NOT NULL THEN NULL
            ELSE start.orchestration_version
          END
        ),
        says.continues AND (first.turn).next_version IS NULL, start.ordinality, false, start.attributes,
        -- What Duroxide runs has no limit.
        CASE
          WHEN start.major > 0 THEN (
            SELECT l.name FROM limits AS l WHERE l.kind = 'orchestration' AND l.name = start.orchestration_name
          )
        END,
        start.limit_key
      )::dx_instance
      ORDER BY start.ordinality
    )
    FROM unnest(p_starts) WITH ORDINALITY AS start
    -- OFFSET 0: each turn is looked up once.
    CROSS JOIN LATERAL (
      SELECT CASE WHEN p_turns[start.ordinality].execution_id IS NOT NULL THEN p_turns[start.ordinality] END AS turn
      OFFSET 0
    ) AS first
    CROSS JOIN LATERAL (
      SELECT
        (first.turn).orchestration_name IS NOT NULL AND (first.turn).orchestration_version IS NOT NULL AS names,
        (first.turn).major IS NOT NULL AS pins,
        (first.turn).status IS NOT DISTINCT FROM 'ContinuedAsNew' AS continues
    ) AS says
  );
END
$$;
