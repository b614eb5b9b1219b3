/**
 * Triggers in PostgreSQL.
 */
import * as Effect from "effect/Effect"
import type { TriggerDriver } from "../../../recipes/TriggerDriver.ts"
import type { Database } from "../../Database.ts"
import { Prisma } from "../client.ts"
import { bigint, json } from "../rows.ts"
import * as statementSettings from "../settings.ts"
import { createdOf, taskRow } from "../tasks/driver.ts"
import type { CreatedRow } from "../tasks/driver.ts"

export const make = ({ query, schemaSql }: Database["Service"]): TriggerDriver["Service"] => ({
  firedUntil: (name) =>
    Effect.map(
      query<{ readonly ms: number }>(
        "readTrigger",
        Prisma.sql`
          SELECT round(extract(epoch FROM fired_until) * 1000)::float8 AS ms
          FROM ${schemaSql}.queue_triggers
          WHERE name = ${name}`
      ),
      ([row]) => row?.ms ?? null
    ),
  fire: (name, afterMs, untilMs, tasks) =>
    Effect.map(
      query<{ readonly created: ReadonlyArray<CreatedRow> | null }>(
        "fireTrigger",
        Prisma.sql`
          SELECT ${schemaSql}.dx_fire_trigger(
            ${quietly(Prisma.sql`${name}::text`)}, ${bigint(afterMs)}, ${bigint(untilMs)}, ${json(tasks.map(taskRow))}
          ) AS created`
      ),
      ([fired]) => fired!.created?.map(createdOf) ?? null
    )
})

// internal

/** The process announces what it has stored, as to itself. */
const quietly = (argument: Prisma.Sql) => statementSettings.during([statementSettings.quiet], argument)
