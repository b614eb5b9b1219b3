-- Returns the id of the row that the token of an activity names; null for a text that is not such a token.
CREATE OR REPLACE FUNCTION dx_row_id(p_token text) RETURNS bigint LANGUAGE sql IMMUTABLE
AS $$
  SELECT CASE WHEN p_token ~ '^[0-9]{1,18}[.]' THEN split_part(p_token, '.', 1)::bigint END
$$;
