-- Whether a claim that has found nothing is to look for rows of the future that are not to wait, because the clock may
-- have been set back: once in ten seconds per session, and at once where the clock shows less than at the last such
-- look, which this session remembers.
CREATE OR REPLACE FUNCTION dx_looks_ahead(
  p_setting text,                  -- duroxide_prisma.<queue>_ahead
  p_key text,                      -- what is asked for
  p_now_ms bigint
) RETURNS boolean LANGUAGE sql VOLATILE
SET search_path FROM CURRENT
AS $$
  SELECT CASE
    WHEN looked[1] = p_key AND p_now_ms BETWEEN looked[2]::bigint AND looked[2]::bigint + 10000 THEN false
    ELSE set_config(p_setting, ARRAY[p_key, p_now_ms::text]::text, false) IS NOT NULL
  END
  FROM (SELECT NULLIF(current_setting(p_setting, true), '')::text[]) AS mark (looked)
$$;
