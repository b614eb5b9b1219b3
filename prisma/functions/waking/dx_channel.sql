-- Returns the name of the channel on which listeners of this schema learn of work or changes: `<schema>_<kind>`. A
-- longer name than PostgreSQL accepts (63 bytes) becomes `dx_<32 hexadecimal digits>_<kind>`, from the schema's SHA-256
-- in UTF-8. src/prisma/internal/channels.ts makes the same names.
CREATE OR REPLACE FUNCTION dx_channel(
  p_kind text                      -- orch_work, worker_work, changes or queues
) RETURNS text LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_schema text := current_schema();
  v_name text := v_schema || '_' || p_kind;
BEGIN
  IF octet_length(convert_to(v_name, 'UTF8')) <= 63 THEN
    RETURN v_name;
  END IF;
  RETURN 'dx_' || left(encode(sha256(convert_to(v_schema, 'UTF8')), 'hex'), 32) || '_' || p_kind;
END
$$;
