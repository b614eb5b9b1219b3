import type { Bulk } from "../../client/models.ts"

export interface BulkAction {
  readonly action: Bulk["action"]
  readonly verb: string
  readonly done: string
  readonly note: string
  readonly isDanger: boolean
  /** What it does, for who is asked. */
  readonly says?: string
}

export const bulkActions: ReadonlyArray<BulkAction> = [
  { action: "retry", verb: "Retry", done: "retried", note: "failed, cancelled and blocked ones", isDanger: false },
  { action: "pause", verb: "Pause", done: "paused", note: "those that run", isDanger: false },
  { action: "resume", verb: "Resume", done: "resumed", note: "those paused individually", isDanger: false },
  {
    action: "interrupt",
    verb: "Interrupt",
    done: "interrupted",
    note: "they clean up, and end",
    isDanger: true,
    says: "Each cleans up, then it is Cancelled."
  },
  {
    action: "terminate",
    verb: "Terminate",
    done: "terminated",
    note: "they end without clean-up",
    isDanger: true,
    says: "Each is Cancelled at its next turn, without clean-up: no finalizer runs, neither in it nor in its children."
  },
  { action: "delete", verb: "Delete", done: "deleted", note: "those that have ended, with descendants", isDanger: true }
]
