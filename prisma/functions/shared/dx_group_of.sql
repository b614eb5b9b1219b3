-- How many suspects one process may hold together if work with these deliveries without an end is one of them. The
-- number of p_groups that counts: the first one after two deliveries, the last one for all that were delivered more
-- often. Work that was delivered less than twice is not a suspect: the largest integer.
--
-- Each claim admits its candidates in order: a suspect while fewer are admitted than the smallest number so far. A
-- suspect that is refused therefore holds back those behind it, and is the first one of a later claim. Rule and
-- arithmetic are in src/provider/driver/suspects.ts.
CREATE OR REPLACE FUNCTION dx_group_of(
  p_deliveries integer,
  p_groups integer[]               -- at least one
) RETURNS integer LANGUAGE sql IMMUTABLE
AS $$
  SELECT CASE
    WHEN p_deliveries < 2 THEN 2147483647
    ELSE p_groups[least(p_deliveries - 1, cardinality(p_groups))]
  END
$$;
