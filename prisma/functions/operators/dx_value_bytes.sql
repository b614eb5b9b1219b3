-- Returns the size of a value of an instance as its limit counts it, in UTF-8 bytes: a string without the quotes and
-- escapes of JSON, because Duroxide's typed API stores strings bare.
CREATE OR REPLACE FUNCTION dx_value_bytes(p_value text) RETURNS integer LANGUAGE plpgsql IMMUTABLE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_text text := p_value;
BEGIN
  IF starts_with(p_value, '"') THEN
    BEGIN
      v_text := p_value::json #>> '{}';
    EXCEPTION
      -- The text is not JSON, or has an escape that PostgreSQL cannot store.
      WHEN data_exception THEN
        NULL;
    END;
  END IF;
  RETURN octet_length(convert_to(v_text, 'UTF8'));
END
$$;
