-- Returns how many slots of a bound a statement may give at once, if it holds p_parts of the eight parts of the limit;
-- 0 or less: none. Called by dx_admit_at_once.
--
-- With all parts it may give all that are free. With fewer, it may give one share for each part that it holds, if that
-- leaves a share free for each part that it does not hold: other transactions may have given those, and have not
-- committed. Shares are rounded down together, so a bound below 16 needs several parts for one slot.
--
-- Bound: the slots in use, up to the bound. Locks: none.
CREATE OR REPLACE FUNCTION dx_room_at_once(
  p_kind text, p_name text, p_key text, -- as in dx_count_slots
  p_concurrency bigint,            -- null: no bound
  p_parts integer
) RETURNS bigint LANGUAGE plpgsql STABLE
-- settings of the caller
AS $$
DECLARE
  v_share CONSTANT float8 := dx_share_at_once(p_concurrency);
  v_most CONSTANT bigint := p_concurrency - ceil((8 - p_parts) * v_share);
BEGIN
  RETURN CASE
    WHEN p_parts = 0 THEN 0
    WHEN p_concurrency IS NULL THEN 2147483647
    WHEN p_parts = 8 THEN v_most - dx_count_slots(p_kind, p_name, p_key, v_most)
    WHEN floor(p_parts * v_share) > 0 THEN
      least(floor(p_parts * v_share), v_most - dx_count_slots(p_kind, p_name, p_key, v_most))
    ELSE 0
  END;
END
$$;
