import { useEffect, useRef, useState } from "preact/hooks"
import { useOverview, useSession } from "../../app/contexts.ts"
import { type Query, replace, toInstance } from "../../app/route.ts"
import { api } from "../../client/client.ts"
import { useLive } from "../../client/live.ts"
import type { Chunk, ProgressStream } from "../../client/models.ts"
import { useQuery } from "../../client/query.ts"
import { Check, TextField } from "../../parts/fields.tsx"
import { Answer, Empty, Panel, Problem, Table } from "../../parts/panel.tsx"
import { useIsHidden } from "../../parts/payload.tsx"
import { Ago, clock, fullTime, number } from "../../parts/time.tsx"
import { segmentsOf, textOf } from "./chunks.ts"
import { useTail } from "./useTail.ts"

/** The streams of an instance, and the end of one, which follows what is appended. */
export const StreamsPanel = ({ id, query }: { readonly id: string; readonly query: Query }) => {
  const first = useQuery(() => api.read.streams({ query: { id } }), [id])
  const live = useLive(() => api.read.streamsLive({ query: { id } }), [id])
  const overview = useOverview()
  const streams = live.data ?? first.data
  const chosen = streams?.find(({ name }) => name === query["stream"]) ?? streams?.[0]
  return (
    <>
      <Panel title="Streams">
        <Answer query={{ ...first, data: streams }}>
          {(all) =>
            all.length === 0
              ? (
                <Empty>
                  It has no stream. What its program or its activities append to streams would be here, as they append
                  it.
                </Empty>
              )
              : (
                <Table isCards label="Streams" head={["Stream", "Chunks", "Kept", "Size", "Last"]} nums={[1, 2, 3]}>
                  {all.map((stream) => (
                    <tr key={stream.name}>
                      <td class="name">
                        <a
                          href={toInstance(id, { tab: "streams", stream: stream.name })}
                          aria-current={stream === chosen ? "true" : undefined}
                        >
                          {stream.name}
                        </a>
                      </td>
                      <td class="num" data-label="chunks">{number(stream.nextOffset)}</td>
                      <td class="num" data-label="kept">{number(stream.nextOffset - stream.firstOffset)}</td>
                      <td class="num" data-label="size">{size(stream.bytes)}</td>
                      <td data-label="last">
                        <Ago atMs={stream.appendedAtMs} />
                      </td>
                    </tr>
                  ))}
                </Table>
              )}
        </Answer>
      </Panel>
      {live.problem !== null && live.problem !== "connecting" && overview.problem === null && (
        <p class="notice" role="status">not live: {live.problem}</p>
      )}
      {chosen !== undefined && <Tail key={chosen.name} id={id} stream={chosen} query={query} />}
    </>
  )
}

const size = (bytes: number): string => bytes < 1000 ? `${bytes} B` : `${number(Math.round(bytes / 100) / 10)} kB`

const Tail = (props: { readonly id: string; readonly stream: ProgressStream; readonly query: Query }) => {
  const { id, query, stream } = props
  const isHidden = useIsHidden()
  const { seesPayloads } = useSession()
  const given = query["from"] ?? ""
  const isOffset = /^\d{1,15}$/.test(given)
  const tail = useTail(id, stream, isOffset ? Number(given) : undefined)
  const [follows, setFollows] = useState(true)
  const box = useRef<HTMLDivElement>(null)
  useEffect(() => {
    if (follows && box.current !== null) box.current.scrollTop = box.current.scrollHeight
  }, [tail.chunks, follows])
  const [shown] = tail.chunks
  return (
    <Panel
      title={stream.name}
      end={<Check checked={follows} onInput={setFollows}>Follow its end</Check>}
    >
      <div class="body fields one">
        <TextField
          label="From offset"
          value={given}
          onInput={(from) => replace(toInstance(id, { tab: "streams", stream: stream.name, from }))}
          placeholder="the newest"
          problem={given !== "" && !isOffset ? "Write a whole number." : undefined}
          hint={`${number(stream.firstOffset)} to ${number(Math.max(stream.firstOffset, stream.nextOffset - 1))}`}
        />
      </div>
      {tail.problem !== null && <Problem text={tail.problem} />}
      {shown !== undefined && shown.offset > stream.firstOffset && !isOffset && (
        <p class="note">From offset {number(shown.offset)} on. Write an earlier offset to see what is before it.</p>
      )}
      {tail.isCut && <p class="note">The first ones are left out here: read from an offset in smaller parts.</p>}
      {!seesPayloads
        ? <Empty>You may not see payloads.</Empty>
        : isHidden
        ? <Empty>Payloads are hidden. Show them with the switch above.</Empty>
        : (
          <div class="tail" ref={box} tabIndex={0} role="log" aria-label={`Chunks of ${stream.name}`} aria-live="off">
            <Chunks chunks={tail.chunks} />
          </div>
        )}
      <p class="note">{tail.hasEnded ? "The instance has ended: nothing follows." : "It shows what is appended."}</p>
    </Panel>
  )
}

/** One text where all are texts, otherwise a line for each. */
const Chunks = ({ chunks }: { readonly chunks: ReadonlyArray<Chunk> }) => {
  const segments = segmentsOf(chunks)
  if (segments !== undefined) {
    return (
      <>
        {segments.map(({ offset, text, why }) => (
          <div key={offset}>
            {why !== null && <p class="tail-mark">{why}</p>}
            <pre>{text}</pre>
          </div>
        ))}
      </>
    )
  }
  return (
    <ol class="chunks">
      {chunks.slice(-mostLines).map((one) => (
        <li key={one.offset}>
          <span class="muted" title={fullTime(one.appendedAtMs)}>#{one.offset} {clock(one.appendedAtMs)}</span>
          <code>{textOf(one)}</code>
        </li>
      ))}
    </ol>
  )
}

const mostLines = 1000
