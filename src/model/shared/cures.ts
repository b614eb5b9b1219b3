/**
 * What cures a blocked instance, for logs and the command line.
 */
import type { Block, BlockReason } from "../Block.ts"
import { shellArgument, shellWord } from "./shellWord.ts"

export const cures: { readonly [R in BlockReason]: string } = {
  HistoryDiffers: "its code has changed, or reads time or chance outside of Effect. " +
    "Bring the old code back, or ask with Orchestration.changed, or make the change a new version",
  DataUnreadable: "a Schema refuses what is stored. Deploy a definition that can read it",
  NotDurable: "it awaits something that is not durable. Put that into an activity",
  Endless: "it never comes to rest. Put long computing into an activity"
}

/** How the problem of a block ends whose program died where its history continues. */
export const died = "the code has died"

/** The cure of one instance, which may also take back what it did with a wrong build. */
export const cureOf = (
  { eventId, problem, reason }: Pick<Block, "eventId" | "problem" | "reason">,
  instanceId: string
): string =>
  reason === "HistoryDiffers" && problem.endsWith(died)
    ? "correct it, or bring the old code back. The log of the build that tried says what its program died of"
    : reason === "HistoryDiffers" && eventId > 1
    ? `${cures[reason]}, or let this code do anew what follows, effects included: ${retryFrom(eventId - 1, instanceId)}`
    : cures[reason]

// internal

/** An id that begins with a dash would be taken for a flag. */
const retryFrom = (eventId: number, instanceId: string): string =>
  instanceId.startsWith("-")
    ? `retry --from ${eventId} ${shellArgument(instanceId)}`
    : `retry ${shellWord(instanceId)} --from ${eventId}`
