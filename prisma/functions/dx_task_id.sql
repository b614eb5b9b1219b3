-- The id in a text that may hold anything; null if it holds none.
CREATE OR REPLACE FUNCTION dx_task_id(p_text text)
RETURNS uuid
LANGUAGE sql IMMUTABLE
AS $$
  SELECT CASE WHEN p_text ~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN p_text::uuid END
$$;
