import { useOverview } from "../../app/contexts.ts"
import { link } from "../../app/route.ts"
import { api } from "../../client/client.ts"
import type { Instance, Process } from "../../client/models.ts"
import { useQuery } from "../../client/query.ts"
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
  const builds = buildsOf(instance, useOverview().data?.processes ?? [])
  return (
    <section class="block-note" aria-label="What the replay found">
      <Others instance={instance} />
      <h2>For the developers</h2>
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
        <dt>Alive with {definitionOf(instance)}</dt>
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

/** Living processes that serve its definition, by build. */
export const buildsOf = (instance: Instance, processes: ReadonlyArray<Process>): ReadonlyMap<string, number> => {
  const definition = definitionOf(instance)
  const builds = new Map<string, number>()
  for (const process of processes) {
    if (process.isAlive && process.orchestrations.includes(definition)) {
      builds.set(process.build, (builds.get(process.build) ?? 0) + 1)
    }
  }
  return builds
}

const definitionOf = ({ orchestration, version }: Instance) => `${orchestration}@${version ?? ""}`

/** How many others of its definition are blocked: a wrong deploy blocks many. */
const Others = ({ instance: { instanceId, orchestration, version } }: { readonly instance: Instance }) => {
  const query = { status: "Blocked", name: orchestration, ...(version === null ? {} : { version }) } as const
  const page = useQuery(() => api.read.instances({ query }), [instanceId], { everyMs: 15_000 }).data
  if (page === null) return null
  const others = page.instances.filter((one) => one.instanceId !== instanceId).length
  // A page may be empty although more follow.
  if (others === 0 && page.next !== null) return null
  const definition = `${orchestration}${version === null ? "" : ` ${version}`}`
  return (
    <p>
      {others === 0
        ? `No other instance of ${definition} is blocked.`
        : (
          <a href={link(["instances"], query)}>
            {page.next === null ? "" : "At least "}
            {plural(others, "other instance", "other instances")} of {definition} {others === 1 ? "is" : "are"} blocked
          </a>
        )}
    </p>
  )
}
