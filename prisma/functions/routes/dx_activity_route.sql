-- Returns the route (name and tag) of an activity. Empty if its text names none, or if the route is too long.
CREATE OR REPLACE FUNCTION dx_activity_route(
  p_work_item text,
  p_tag text,                      -- as the column `tag` has it
  p_session_id text
) RETURNS text LANGUAGE plpgsql IMMUTABLE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_route text;
BEGIN
  BEGIN
    v_route := p_work_item::jsonb -> 'ActivityExecute' ->> 'name' || COALESCE(' #' || dx_tag(p_tag), '');
  EXCEPTION
    -- The text is not JSON, or too deep. An insert must not fail for that.
    WHEN data_exception OR program_limit_exceeded THEN
      NULL;
  END;
  -- An index entry holds at most 2,704 bytes. An insert by another program must not fail for that, and no TypeScript
  -- worker serves names this long.
  RETURN CASE
    WHEN octet_length(v_route) + COALESCE(octet_length(p_session_id), 0) <= 2400 THEN v_route
    ELSE ''
  END;
END
$$;
