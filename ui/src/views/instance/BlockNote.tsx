import { useOverview } from "../../app/contexts.ts"
import type { Instance } from "../../client/models.ts"
import { Ago, plural } from "../../parts/time.tsx"

const reasons = {
  HistoryDiffers: "The code asks for something else than its history has.",
  DataUnreadable: "The code cannot read what is stored.",
  NotDurable: "The code waits for something that is not recorded.",
  Endless: "The turn does not end."
}

const cures = {
  HistoryDiffers: "Bring the old code back, or ask with Orchestration.changed, or make the change a new version.",
  DataUnreadable: "Deploy a build whose Schema reads it.",
  NotDurable: "Deploy a build that does it in an activity.",
  Endless: "Deploy a build that waits."
}

/** Why the replay stopped here, and which builds could take it up. */
export const BlockNote = (
  { block, instance }: { readonly instance: Instance; readonly block: NonNullable<Instance["block"]> }
) => {
  const processes = useOverview().data?.processes ?? []
  const definition = `${instance.orchestration}@${instance.version ?? ""}`
  const builds = new Map<string, number>()
  for (const process of processes) {
    if (process.isAlive && process.orchestrations.includes(definition)) {
      builds.set(process.build, (builds.get(process.build) ?? 0) + 1)
    }
  }
  return (
    <section class="block-note" aria-label="What the replay found">
      <p>
        <span class="chip">{block.reason}</span> {reasons[block.reason]}
      </p>
      <p class="payload mono">{block.problem}</p>
      <p>{cures[block.reason]}</p>
      <dl class="pairs small">
        <dt>Tried by</dt>
        <dd>
          <span class="chip">{block.build}</span> {plural(block.tries, "try", "tries")}, the last{" "}
          <Ago atMs={block.triedAtMs} />, first <Ago atMs={block.sinceMs} />
        </dd>
        <dt>Alive with {definition}</dt>
        <dd>
          {builds.size === 0 ? "no process" : [...builds].map(([build, n]) => (
            <span class="row tight" key={build}>
              <span class="chip">{build}</span> {plural(n, "process", "processes")}
              {build === block.build ? " (this one could not)" : " (another build)"}
            </span>
          ))}
        </dd>
      </dl>
    </section>
  )
}
