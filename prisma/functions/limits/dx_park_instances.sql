-- Says which of these instances, about to be created, wait for a slot of their limits: returns the place of each, 0 for
-- one that need not wait. Those that start later always wait. A part of dx_start_orchestrations and dx_store_instances.
--
-- Bound: dx_admit_at_once. Locks: the same.
CREATE OR REPLACE FUNCTION dx_park_instances(
  p_instances dx_instance[],       -- with limit_name
  p_delays bigint[],               -- milliseconds from now, of starts by their field turn; null for children alone
  p_now_ms bigint
) RETURNS bigint[] LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_names text[];
  v_keys text[];
  v_delays bigint[];
  v_admitted boolean[];
BEGIN
  SELECT
    array_agg(asked.limit_name ORDER BY asked.ordinality), array_agg(asked.limit_key ORDER BY asked.ordinality),
    array_agg(asked.delay ORDER BY asked.ordinality)
  INTO v_names, v_keys, v_delays
  FROM (
    SELECT
      instance.*, CASE WHEN instance.is_child OR p_delays IS NULL THEN 0 ELSE p_delays[instance.turn] END AS delay
    FROM unnest(p_instances) WITH ORDINALITY AS instance
  ) AS asked;
  v_admitted := dx_admit_at_once(
    'orchestration',
    ARRAY(
      SELECT CASE WHEN asked.delay = 0 THEN asked.name END
      FROM ROWS FROM (unnest(v_names), unnest(v_delays)) WITH ORDINALITY AS asked (name, delay, position)
      ORDER BY asked.position
    ),
    v_keys,
    p_now_ms
  );
  RETURN ARRAY(
    SELECT
      CASE
        WHEN asked.name IS NOT NULL AND (asked.delay > 0 OR asked.is_admitted IS FALSE) THEN dx_limit_place(
          least(p_now_ms + asked.delay, 8000000000000), nextval('orchestrator_queue_id_seq')
        )
        ELSE 0
      END
    FROM ROWS FROM (unnest(v_names), unnest(v_delays), unnest(v_admitted)) WITH ORDINALITY
      AS asked (name, delay, is_admitted, position)
    ORDER BY asked.position
  );
END
$$;
