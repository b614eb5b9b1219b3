-- Returns the UUID that a text holds; null for any other text.
--
-- Bound: none of the tables is read. Locks: none.
CREATE OR REPLACE FUNCTION dx_task_id(p_text text)
RETURNS uuid
LANGUAGE sql IMMUTABLE
AS $$
  SELECT CASE WHEN p_text ~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN p_text::uuid END
$$;
