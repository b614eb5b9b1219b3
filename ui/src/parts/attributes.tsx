import { link } from "../app/route.ts"
import type { AttributeValue, Instance } from "../client/models.ts"
import { dateTime, number } from "./time.tsx"

export const attributeText = (value: AttributeValue): string =>
  typeof value === "object" ? dateTime(value.timeMs) : typeof value === "number" ? number(value) : value

/** To the instances with the same; as the filter writes it. */
export const toSame = (name: string, value: AttributeValue): string =>
  link(["instances"], {
    attributes: typeof value === "object"
      ? `${name}:=${new Date(value.timeMs).toISOString()}`
      : typeof value === "number"
      ? `${name}:=${value}`
      : `${name}=${value}`
  })

const mostInList = 6

/** In lists as texts; on the instance itself each leads to those with the same. */
export const Attributes = (props: { readonly of: Instance["attributes"]; readonly hasLinks?: boolean }) => {
  const all = Object.entries(props.of)
  const shown = props.hasLinks === true ? all : all.slice(0, mostInList)
  if (all.length === 0) return null
  return (
    <span class="attributes">
      {shown.map(([name, value]) => {
        const text = `${name} ${attributeText(value)}`
        return props.hasLinks === true
          ? <a key={name} href={toSame(name, value)} title={`${text}: instances with the same`}>{text}</a>
          : <span key={name} title={text}>{text}</span>
      })}
      {all.length > shown.length && <span>{all.length - shown.length} more</span>}
    </span>
  )
}
