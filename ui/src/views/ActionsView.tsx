import { api } from "../client/client.ts"
import { useQuery } from "../client/query.ts"
import { Pager } from "../parts/pager.tsx"
import { usePages } from "../parts/pages.ts"
import { Answer, Empty, Panel, Table } from "../parts/panel.tsx"
import { Ago } from "../parts/time.tsx"

const tones = { done: "green", refused: "amber", failed: "red" }

/** What people did with the page. */
export const ActionsView = () => {
  const pages = usePages([])
  const actions = useQuery(
    () => api.read.actions({ query: pages.cursor === undefined ? {} : { cursor: pages.cursor } }),
    [pages.cursor],
    { everyMs: 15_000 }
  )
  return (
    <>
      <div class="view-head">
        <h1>Actions</h1>
      </div>
      <Panel title="What was done with this page">
        <Answer query={actions}>
          {({ actions: items, next }) =>
            items.length === 0
              ? (
                <Empty>
                  No one has done anything yet. Every action that is taken here is listed, with its reason and outcome.
                </Empty>
              )
              : (
                <div>
                  <Table label="Actions" head={["When", "Who", "Action", "Target", "Details", "Outcome"]}>
                    {items.map((item) => (
                      <tr key={item.id}>
                        <td>
                          <Ago atMs={item.atMs} />
                        </td>
                        <td class="break">{item.actor}</td>
                        <td class="name">{item.action}</td>
                        <td class="break">{item.target}</td>
                        <td class="detail break">{item.details}</td>
                        <td>
                          <span class={`badge ${tones[item.outcome]}`}>{item.outcome}</span>
                        </td>
                      </tr>
                    ))}
                  </Table>
                  <Pager pages={pages} next={next} isLoading={actions.isLoading} />
                </div>
              )}
        </Answer>
      </Panel>
    </>
  )
}
