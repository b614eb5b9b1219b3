-- Limits of the roles of docs/postgresql.md, wherever they connect from. Run it as a role that may alter them. Limits
-- are those of the role that logs in: members do not inherit them, so put the names of your logins here.
ALTER ROLE duroxide_worker SET idle_in_transaction_session_timeout = '1min';
ALTER ROLE duroxide_client SET idle_in_transaction_session_timeout = '1min';
ALTER ROLE duroxide_reader SET statement_timeout = '1min';
-- A migration waits for another one as long as its own setting says, and for a forgotten transaction a minute.
ALTER ROLE duroxide_migrator SET lock_timeout = '1min';
