-- Stores what turns say of their instances, and creates the instances that they start. A part of dx_store_turns, for
-- all but first turns, whose caller has created these rows.
--
-- Returns the ids of the instances that were started; null without any. Bound: the turns, and the messages given; with
-- limits: dx_admit_at_once. Locks: with limits those of dx_admit_at_once; instance rows by id where they are missing;
-- as dx_create_instances; then the rows of the turns.
CREATE OR REPLACE FUNCTION dx_store_instances(
  p_turns dx_turn[],
  p_creates boolean,               -- whether a claimed turn names its instance, which may have no row then
  p_orchestrator_items jsonb,      -- this and the next one: as in dx_store_turns
  p_texts text[], p_now timestamptz
) RETURNS text[] LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_created text[] := '{}';
  v_children dx_instance[];
  v_child dx_instance;
  v_places bigint[];               -- of those that wait for a limit
  v_positions bigint[];
  v_started text[];
BEGIN
  IF p_creates THEN
    -- Before the update below: a transaction that waits for a concurrent start of the same id must not hold an instance
    -- row.
    WITH created AS (
      INSERT INTO instances AS i (
        instance_id, orchestration_name, orchestration_version, current_execution_id, created_at, updated_at,
        parent_instance_id, custom_status, custom_status_version, status
      )
      SELECT
        turn.instance_id, turn.orchestration_name, turn.orchestration_version, turn.execution_id, p_now, p_now,
        turn.parent_instance_id, turn.custom_status, COALESCE(turn.sets_custom_status, false)::integer,
        COALESCE(
          dx_status(turn.status, COALESCE(turn.output, p_texts[turn.text_at])),
          -- An earlier turn may have named no instance.
          (
            SELECT dx_status(e.status, e.output) FROM executions AS e
            WHERE e.instance_id = turn.instance_id AND e.execution_id = turn.execution_id
          ),
          'Running'
        )
      FROM unnest(p_turns) AS turn
      WHERE turn.execution_id IS NOT NULL
        AND turn.orchestration_name IS NOT NULL
        AND turn.orchestration_version IS NOT NULL
        AND NOT EXISTS (SELECT FROM instances AS x WHERE x.instance_id = turn.instance_id)
      ORDER BY turn.instance_id COLLATE "C"
      ON CONFLICT (instance_id) DO UPDATE
      SET orchestration_name = excluded.orchestration_name,
          orchestration_version = excluded.orchestration_version,
          current_execution_id = greatest(i.current_execution_id, excluded.current_execution_id),
          updated_at = p_now,
          parent_instance_id = COALESCE(i.parent_instance_id, excluded.parent_instance_id),
          custom_status = CASE
            WHEN excluded.custom_status_version > 0 THEN excluded.custom_status
            ELSE i.custom_status
          END,
          custom_status_version = i.custom_status_version + excluded.custom_status_version,
          status = excluded.status
      RETURNING i.instance_id
    )
    SELECT COALESCE(array_agg(created.instance_id), '{}') INTO v_created FROM created;
  END IF;

  v_children := dx_instances_of_children(p_turns, p_orchestrator_items);
  IF v_children IS NOT NULL THEN
    FOREACH v_child IN ARRAY v_children LOOP
      IF v_child.limit_name IS NOT NULL THEN
        v_places := dx_park_instances(v_children, NULL, floor(extract(epoch FROM p_now) * 1000)::bigint);
        EXIT;
      END IF;
    END LOOP;
    v_positions := dx_create_instances(v_children, NULL, p_now, v_places);
    SELECT array_agg(v_children[created.position].instance_id) INTO v_started
    FROM unnest(v_positions) AS created (position);
  END IF;

  -- In any order: of all transactions only the one that stores the turn of an instance updates its row.
  UPDATE instances AS i
  SET orchestration_name = CASE WHEN turn.names THEN turn.orchestration_name ELSE i.orchestration_name END,
      orchestration_version = CASE WHEN turn.names THEN turn.orchestration_version ELSE i.orchestration_version END,
      parent_instance_id = CASE
        WHEN turn.names THEN COALESCE(i.parent_instance_id, turn.parent_instance_id)
        ELSE i.parent_instance_id
      END,
      current_execution_id = greatest(i.current_execution_id, turn.execution_id), updated_at = p_now,
      custom_status = CASE WHEN turn.sets_custom_status THEN turn.custom_status ELSE i.custom_status END,
      custom_status_version = i.custom_status_version + COALESCE(turn.sets_custom_status, false)::integer,
      status = COALESCE(dx_status(turn.status, COALESCE(turn.output, p_texts[turn.text_at])), i.status),
      limit_place = NULL
  FROM (
    SELECT turn.*, turn.orchestration_name IS NOT NULL AND turn.orchestration_version IS NOT NULL AS names
    FROM unnest(p_turns) AS turn WHERE turn.execution_id IS NOT NULL
  ) AS turn
  WHERE i.instance_id = turn.instance_id AND i.instance_id <> ALL (v_created);
  RETURN v_started;
END
$$;
