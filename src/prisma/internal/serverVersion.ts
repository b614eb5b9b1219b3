/** The oldest major version of PostgreSQL that the stored functions run on. */
export const oldestServer = 14
