/**
 * The processes that run work.
 */
import * as Effect from "effect/Effect"
import type { ProviderDriver } from "../../../provider/ProviderDriver.ts"
import { Prisma } from "../client.ts"
import { json, processRow } from "../rows.ts"
import { plain, timeless } from "../statements.ts"
import type { Calls } from "./calls.ts"

export const processes = ({ answer }: Calls) => ({
  registerProcess: (process) =>
    Effect.map(
      answer<bigint | null>("registerProcess", "dx_register_process", [json(processRow(process))], plain),
      (aliveForMs) => aliveForMs === null ? null : Number(aliveForMs)
    ),

  removeProcess: (id) =>
    Effect.asVoid(answer<boolean>("removeProcess", "dx_remove_process", [Prisma.sql`${id}::uuid`], timeless))
} satisfies Partial<ProviderDriver["Service"]>)
