-- Returns the key of the advisory lock that the listening session of a process holds: the first half of its id.
CREATE OR REPLACE FUNCTION dx_process_key(p_id uuid) RETURNS bigint LANGUAGE sql IMMUTABLE
AS $$
  SELECT ('x' || left(replace(p_id::text, '-', ''), 16))::bit(64)::bigint
$$;
