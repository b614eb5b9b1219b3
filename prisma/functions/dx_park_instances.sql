-- Says which of these instances, about to be created, wait for a slot of their limits: gives them their place. Those that
-- start later always wait. A part of dx_start_orchestrations and dx_store_instances.
--
-- Bound: dx_admit_at_once. Locks: the same.
CREATE OR REPLACE FUNCTION dx_park_instances(
  p_instances dx_instance[],       -- with limit_name, and without a place
  p_starts dx_start[],             -- by their field turn; null for children
  p_now_ms bigint
) RETURNS dx_instance[] LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_instances dx_instance[] := p_instances;
  v_admitted boolean[];
  v_delay_ms bigint;
BEGIN
  v_admitted := dx_admit_at_once(
    'orchestration',
    ARRAY(
      SELECT
        CASE
          WHEN instance.is_child OR COALESCE(p_starts[instance.turn].delay_ms, 0) = 0 THEN instance.limit_name
        END
      FROM unnest(p_instances) WITH ORDINALITY AS instance
      ORDER BY instance.ordinality
    ),
    ARRAY(
      SELECT instance.limit_key FROM unnest(p_instances) WITH ORDINALITY AS instance
      ORDER BY instance.ordinality
    )
  );
  FOR v_position IN 1 .. cardinality(v_instances) LOOP
    CONTINUE WHEN v_instances[v_position].limit_name IS NULL;
    v_delay_ms := CASE
      WHEN v_instances[v_position].is_child THEN 0
      ELSE greatest(COALESCE(p_starts[v_instances[v_position].turn].delay_ms, 0), 0)
    END;
    IF v_delay_ms > 0 OR v_admitted[v_position] IS FALSE THEN
      v_instances[v_position].limit_place := dx_limit_place(
        least(p_now_ms + v_delay_ms, 8000000000000), nextval('orchestrator_queue_id_seq')
      );
    END IF;
  END LOOP;
  RETURN v_instances;
END
$$;
