/**
 * The objects of a schema that Prisma does not see: functions and types, triggers, partial and expression indexes,
 * constraints, views and storage parameters, as text that does not depend on the schema's name.
 *
 * A partitioned table has the same text as one that is not: `prisma/partitions` may be applied to a store or not. The
 * partitions are left out, with all that belongs to them.
 */
import pg from "pg"

const query = `
  SELECT 'function' AS kind,
    p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')' AS name,
    pg_get_functiondef(p.oid) AS definition
  FROM pg_proc AS p
  WHERE p.pronamespace = $1::regnamespace AND p.prokind IN ('f', 'p')
  UNION ALL
  SELECT 'trigger', c.relname || '.' || t.tgname, pg_get_triggerdef(t.oid)
  FROM pg_trigger AS t
  JOIN pg_class AS c ON c.oid = t.tgrelid
  WHERE c.relnamespace = $1::regnamespace AND NOT t.tgisinternal AND NOT c.relispartition
  UNION ALL
  SELECT 'index', c.relname, replace(pg_get_indexdef(c.oid), ' ON ONLY ', ' ON ')
  FROM pg_class AS c
  JOIN pg_index AS i ON i.indexrelid = c.oid
  JOIN pg_class AS r ON r.oid = i.indrelid
  WHERE c.relnamespace = $1::regnamespace AND NOT r.relispartition
  UNION ALL
  SELECT 'constraint', r.relname || '.' || k.conname, pg_get_constraintdef(k.oid)
  FROM pg_constraint AS k
  JOIN pg_class AS r ON r.oid = k.conrelid
  WHERE k.connamespace = $1::regnamespace AND NOT r.relispartition
  UNION ALL
  SELECT 'view', c.relname, pg_get_viewdef(c.oid)
  FROM pg_class AS c
  WHERE c.relnamespace = $1::regnamespace AND c.relkind IN ('v', 'm')
  UNION ALL
  SELECT 'type', c.relname, string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod), ', ' ORDER BY a.attnum)
  FROM pg_class AS c
  JOIN pg_attribute AS a ON a.attrelid = c.oid
  WHERE c.relnamespace = $1::regnamespace AND c.relkind = 'c' AND NOT a.attisdropped
  GROUP BY c.relname
  UNION ALL
  SELECT 'storage', c.relname, array_to_string(c.reloptions, ', ')
  FROM pg_class AS c
  WHERE c.relnamespace = $1::regnamespace AND c.reloptions IS NOT NULL AND NOT c.relispartition`

/** `kind name` to definition, without the tables that record migrations. */
export async function readCatalog(client, schema) {
  const quoted = pg.escapeIdentifier(schema)
  const { rows: [before] } = await client.query("SELECT current_setting('search_path') AS path")
  await client.query("SET search_path = pg_catalog") // so that names of the schema are always qualified
  const { rows } = await client.query(query, [quoted])
  await client.query("SELECT set_config('search_path', $1, false)", [before.path])
  const withoutSchema = (text) =>
    [`${quoted}.`, `${schema}.`, `'${schema}'`].reduce((rest, name) => rest.replaceAll(name, ""), text)
  return new Map(
    rows.filter(({ name }) => !name.startsWith("_prisma_migrations")).map((
      { definition, kind, name }
    ) => [`${kind} ${withoutSchema(name)}`, withoutSchema(definition)])
  )
}

/** One line per difference between `actual` and `expected`. */
export function compareCatalogs(expected, actual) {
  return [
    ...[...expected].flatMap(([key, definition]) =>
      !actual.has(key) ? [`missing ${key}`] : actual.get(key) === definition ? [] : [`changed ${key}`]
    ),
    ...[...actual.keys()].filter((key) => !expected.has(key)).map((key) => `additional ${key}`)
  ].sort()
}
