import type { Instance } from "../client/models.ts"

const tones = {
  Running: "blue",
  Completed: "green",
  Failed: "red",
  Cancelled: "",
  ContinuedAsNew: "",
  Pending: "",
  Dead: "red"
} as const

export const StatusBadge = ({ status }: { readonly status: keyof typeof tones }) => (
  <span class={`badge ${tones[status]}`}>{status === "ContinuedAsNew" ? "Continued as new" : status}</span>
)

/** The status; one that runs and is blocked or paused has only that. */
export const InstanceBadges = ({ instance }: { readonly instance: Pick<Instance, "status" | "block" | "pause"> }) => (
  <span class="badges">
    {(instance.status !== "Running" || (instance.block === null && instance.pause === null)) && (
      <StatusBadge status={instance.status} />
    )}
    {instance.block !== null && <span class="badge red">Blocked</span>}
    {instance.pause !== null && <span class="badge amber">Paused</span>}
  </span>
)
