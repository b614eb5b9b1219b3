-- Returns the names of tasks that have limits. Bound: the limits of tasks. Locks: none.
CREATE OR REPLACE FUNCTION dx_limited_tasks() RETURNS text[] LANGUAGE sql STABLE
-- settings of the caller
AS $$
  SELECT ARRAY(SELECT l.name FROM limits AS l WHERE l.kind = 'task')
$$;
