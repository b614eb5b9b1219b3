-- Returns a text that compares as semantic versions do, byte by byte: under COLLATE "C". Any other text is lower than
-- every version. Build metadata is ignored.
--
-- The three numbers come first, nine digits each. A release ends with a tilde. A pre-release has a space before each
-- identifier, which is lower than every character of one: so fewer identifiers are lower than more, and all are lower
-- than the release. A number has its length in front, and is lower than a word.
CREATE OR REPLACE FUNCTION dx_semantic_version(p_version text) RETURNS text LANGUAGE sql IMMUTABLE
AS $$
  SELECT CASE
    WHEN p_version ~ '^[0-9]{1,9}[.][0-9]{1,9}[.][0-9]{1,9}([-+]|$)' THEN
      (
        SELECT string_agg(lpad(part.digits, 9, '0'), '.' ORDER BY part.place)
        FROM unnest(string_to_array(substring(p_version FROM '^[0-9.]+'), '.')) WITH ORDINALITY AS part (digits, place)
      )
        || COALESCE(
          (
            SELECT string_agg(
              CASE
                WHEN part.identifier ~ '^[0-9]+$' THEN ' 1' || lpad(length(part.identifier)::text, 4, '0')
                ELSE ' 2'
              END || part.identifier,
              ''
              ORDER BY part.place
            )
            FROM unnest(string_to_array(substring(p_version FROM '^[0-9.]+-([^+]*)'), '.'))
              WITH ORDINALITY AS part (identifier, place)
          ),
          '~'
        )
    ELSE ''
  END
$$;
