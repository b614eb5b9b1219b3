-- How many slots of a bound one statement may give at once. A part of dx_admit_at_once.
--
-- Bound: the slots in use, up to the bound. Locks: none.
CREATE OR REPLACE FUNCTION dx_room_at_once(
  p_kind text, p_name text, p_key text, -- as in dx_count_slots
  p_concurrency bigint             -- null: no bound
) RETURNS bigint LANGUAGE plpgsql STABLE
-- settings of the caller
AS $$
DECLARE
  v_share CONSTANT bigint := least(250, p_concurrency / 8);
  -- The others may have given a share each, and have not committed.
  v_most CONSTANT bigint := p_concurrency - 3 * v_share;
BEGIN
  RETURN CASE
    WHEN p_concurrency IS NULL THEN 2147483647
    WHEN v_share = 0 THEN 0
    ELSE least(v_share, v_most - dx_count_slots(p_kind, p_name, p_key, v_most))
  END;
END
$$;
