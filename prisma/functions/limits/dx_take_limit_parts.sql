-- Takes as many parts of a limit as can be had without waiting, up to p_needed, until the end of the transaction.
-- Called by dx_admit_at_once.
--
-- Returns how many of them the transaction holds. Those that it holds already count: taking them again succeeds.
--
-- Bound: eight locks. Locks: advisory locks of parts (try).
CREATE OR REPLACE FUNCTION dx_take_limit_parts(
  p_kind text, p_name text,        -- as in dx_set_limit
  p_needed integer                 -- 1 to 8
) RETURNS integer LANGUAGE plpgsql
-- settings of the caller
AS $$
DECLARE
  v_held integer := 0;
BEGIN
  FOR v_part IN 1 .. 8 LOOP
    EXIT WHEN v_held = p_needed;
    IF pg_try_advisory_xact_lock(dx_limit_lock(p_kind, p_name, v_part)) THEN
      v_held := v_held + 1;
    END IF;
  END LOOP;
  RETURN v_held;
END
$$;
