/** Times, ages and numbers for people. */
import { useTimed } from "../client/clock.ts"

const units = [["d", 86_400_000], ["h", 3_600_000], ["min", 60_000], ["s", 1000]] as const

/** Such as `12 s`, `3 min`, `2 h 5 min`; below a second `340 ms`. */
export const duration = (ms: number): string => {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`
  const at = units.findIndex(([, size]) => ms >= size)
  const [name, size] = units[at] ?? ["s", 1000]
  const whole = Math.floor(ms / size)
  if (name === "s") return ms < 10_000 && ms % 1000 >= 100 ? `${(ms / 1000).toFixed(1)} s` : `${whole} s`
  const [below, belowSize] = units[at + 1] ?? ["s", 1000]
  const rest = Math.floor((ms - whole * size) / belowSize)
  return rest === 0 || whole >= 10 ? `${whole} ${name}` : `${whole} ${name} ${rest} ${below}`
}

const two = (n: number) => String(n).padStart(2, "0")

/** `18:50:23` by the clock of the browser. */
export const clock = (ms: number): string => {
  const at = new Date(ms)
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`
}

/** `2026-11-22 18:50:23` by the clock of the browser. */
export const dateTime = (ms: number): string => {
  const at = new Date(ms)
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock(ms)}`
}

/** The local time and the same in UTC, which the command line and logs have. */
export const fullTime = (ms: number): string => `${dateTime(ms)} here, ${new Date(ms).toISOString()}`

/** How long ago, or in how long. */
export const Ago = ({ atMs }: { readonly atMs: number }) => {
  const text = useTimed((nowMs) => agoText(nowMs - atMs))
  return <time class="nowrap" dateTime={new Date(atMs).toISOString()} title={fullTime(atMs)}>{text}</time>
}

const agoText = (ms: number): string => ms < -500 ? `in ${coarse(-ms)}` : ms < 1000 ? "now" : `${coarse(ms)} ago`

/** For how long. */
export const For = ({ sinceMs }: { readonly sinceMs: number }) => {
  const text = useTimed((nowMs) => duration(floor(Math.max(0, nowMs - sinceMs))))
  return <span class="nowrap" title={`since ${fullTime(sinceMs)}`}>{text}</span>
}

/** In one unit: an age that is looked at in passing. */
const coarse = (ms: number): string => duration(floor(ms)).split(" ").slice(0, 2).join(" ")

/** `1:04:09.120`, the distance from a start. */
export const offset = (ms: number): string => {
  const at = new Date(Math.max(0, ms))
  const days = Math.floor(at.getTime() / 86_400_000)
  const text = `${two(at.getUTCMinutes())}:${two(at.getUTCSeconds())}.${
    String(at.getUTCMilliseconds()).padStart(3, "0")
  }`
  return `${days > 0 ? `${days} d ` : ""}${at.getUTCHours() > 0 || days > 0 ? `${at.getUTCHours()}:` : ""}${text}`
}

const floor = (ms: number) => (ms < 1000 ? ms : Math.floor(ms / 1000) * 1000)

const numbers = new Intl.NumberFormat("en")

export const number = (n: number): string => numbers.format(n)

/** With one decimal below ten. */
export const rate = (n: number | undefined): string =>
  n === undefined ? "–" : number(n < 10 ? Math.round(n * 10) / 10 : Math.round(n))

/** Quiet where it is zero, so that the others stand out. */
export const Num = ({ n, tone }: { readonly n: number; readonly tone?: string | undefined }) =>
  n === 0
    ? <span class="zero">0</span>
    : tone === undefined
    ? <>{number(n)}</>
    : <span class={`badge ${tone}`}>{number(n)}</span>

export const plural = (n: number, one: string, many = `${one}s`): string => `${number(n)} ${n === 1 ? one : many}`
