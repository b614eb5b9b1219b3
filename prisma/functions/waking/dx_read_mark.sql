-- Returns what this session remembers of the last full look of a claim, or of a handover, through a queue: the time
-- before which no row was waiting, in milliseconds since the Unix epoch, then the routes that had rows. Null: look
-- through all of it.
--
-- It exists only where rows died in great number and could not be removed (dx_set_mark). A row that becomes free below
-- the mark, or whose transaction commits that late, is found by the next full look.
CREATE OR REPLACE FUNCTION dx_read_mark(
  p_setting text,                  -- duroxide_prisma.<queue>, or duroxide_prisma.handover
  p_key text,                      -- what is asked for
  p_now_ms bigint
) RETURNS text[] LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT CASE WHEN mark[1] = p_key AND p_now_ms BETWEEN mark[2]::bigint AND mark[3]::bigint THEN mark[4:] END
  FROM (SELECT NULLIF(current_setting(p_setting, true), '')::text[]) AS stored (mark)
$$;
