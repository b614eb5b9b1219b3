-- The role that owns the schema, its tables and its functions, and alone changes them.
--
-- Run it as an administrator, before the first migration. Then migrate as this role, and run the files of the other
-- roles. Objects belong to the role that creates them: migrate with a login named like this one, or with ALTER ROLE
-- <login> SET role = 'duroxide_migrator', so that every later migration owns what the first one created.
--
-- "duroxide" is the schema; replace it and the name of the role by yours. Running the file again changes nothing.

DO $create$
BEGIN
  IF to_regrole('"duroxide_migrator"') IS NULL THEN
    CREATE ROLE "duroxide_migrator" NOLOGIN;
  END IF;
  IF to_regnamespace('"duroxide"') IS NULL THEN
    -- An administrator without superuser rights must be a member of the role to give it something.
    IF NOT pg_has_role(to_regrole('"duroxide_migrator"'), 'USAGE') THEN
      GRANT "duroxide_migrator" TO CURRENT_USER;
    END IF;
    CREATE SCHEMA "duroxide" AUTHORIZATION "duroxide_migrator";
  END IF;
END
$create$;

-- For a schema that existed, such as public: the role can pass on what the other roles need.
GRANT USAGE, CREATE ON SCHEMA "duroxide" TO "duroxide_migrator" WITH GRANT OPTION;
-- PostgreSQL 14 lets everyone create objects in the schema public.
REVOKE CREATE ON SCHEMA "duroxide" FROM PUBLIC;
