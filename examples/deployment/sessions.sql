-- Limits of the roles of docs/roles.md, wherever they connect from. Run it as a role that may alter them.
ALTER ROLE duroxide_worker SET lock_timeout = '5s';
ALTER ROLE duroxide_worker SET idle_in_transaction_session_timeout = '1min';
ALTER ROLE duroxide_client SET lock_timeout = '5s';
ALTER ROLE duroxide_client SET idle_in_transaction_session_timeout = '1min';
ALTER ROLE duroxide_reader SET statement_timeout = '1min';
ALTER ROLE duroxide_reader SET default_transaction_read_only = on;
-- A migration waits for its own lock, but not for a transaction of the application that has forgotten to end.
ALTER ROLE duroxide_migrator SET lock_timeout = '1min';
