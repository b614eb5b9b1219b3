-- Notes that the instants of a cron trigger up to a time have fired. The time never moves back.
--
-- Returns the time noted, milliseconds since the Unix epoch; null for a trigger that has never fired.
--
-- Bound: one row. Locks: the row.
CREATE OR REPLACE FUNCTION dx_move_trigger(
  p_name text,
  p_until_ms bigint                -- milliseconds since the Unix epoch; null: only reads
)
RETURNS bigint
LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_until timestamptz;
BEGIN
  IF p_until_ms IS NULL THEN
    SELECT t.fired_until
    INTO v_until
    FROM queue_triggers AS t
    WHERE t.name = p_name;
  ELSE
    INSERT INTO queue_triggers AS t (name, fired_until)
    VALUES (p_name, to_timestamp(p_until_ms::float8 / 1000))
    ON CONFLICT (name) DO UPDATE
    SET fired_until = greatest(t.fired_until, excluded.fired_until)
    RETURNING t.fired_until
    INTO v_until;
  END IF;
  RETURN round(extract(epoch FROM v_until) * 1000);
END
$$;
