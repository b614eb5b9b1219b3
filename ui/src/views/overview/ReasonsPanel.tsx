import { useOverview } from "../../app/contexts.ts"
import { link, toInstance } from "../../app/route.ts"
import { api } from "../../client/client.ts"
import { useQuery } from "../../client/query.ts"
import { Answer, Empty, Panel, Table } from "../../parts/panel.tsx"
import { Ago, For, number } from "../../parts/time.tsx"

/** Running instances in groups that wait for the same. */
export const ReasonsPanel = () => {
  const reasons = useQuery(() => api.read.reasons({ query: {} }), [], { everyMs: 10_000 })
  const counts = useOverview().data?.counts.filter(({ status }) => status === "Running") ?? []
  const running = counts.reduce((sum, { instances }) => sum + instances, 0)
  return (
    <Panel
      title={reasons.data?.isMore === true
        ? `What runs waits for: the ${number(reasons.data.instances)} oldest${
          running === 0 ? "" : ` of ${counts.some((one) => one.isEstimate) ? "about " : ""}${number(running)} that run`
        }`
        : "What runs waits for"}
      end={
        <button type="button" class="button small plain" disabled={reasons.isLoading} onClick={reasons.reload}>
          Refresh
        </button>
      }
    >
      <Answer query={reasons}>
        {(data) =>
          data.groups.length === 0
            ? <Empty>No instance runs. Those that do would be here, in groups that wait for the same.</Empty>
            : (
              <Table
                isCards
                label="What running instances wait for"
                head={["Instances", "Orchestration", "Reason", "Oldest", "Next", "One of them"]}
                nums={[0]}
              >
                {data.groups.map((group, at) => (
                  <tr key={at}>
                    <td class="num" data-label="Instances">{number(group.instances)}</td>
                    <td class="name">
                      <a href={link(["instances"], { status: "Running", name: group.orchestration })}>
                        {group.orchestration}
                      </a>
                    </td>
                    <td class="detail">{group.reason}</td>
                    <td data-label="Oldest">
                      {group.sinceMs === null ? <span class="zero">–</span> : <For sinceMs={group.sinceMs} />}
                    </td>
                    <td data-label="Next">
                      {group.nextMs === null ? <span class="zero">–</span> : <Ago atMs={group.nextMs} />}
                    </td>
                    <td class="break" data-label="One of them">
                      <a href={toInstance(group.instanceId)}>{group.instanceId}</a>
                    </td>
                  </tr>
                ))}
              </Table>
            )}
      </Answer>
    </Panel>
  )
}
