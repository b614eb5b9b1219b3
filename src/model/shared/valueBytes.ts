/**
 * The size of a value of an instance, for its limit and for statistics.
 */

/**
 * UTF-8 bytes. A string counts without the quotes and escapes of JSON, because Duroxide's typed API stores strings
 * bare. `dx_value_bytes` counts the same.
 */
export const valueBytes = (text: string): number => bytesOf(text.startsWith(`"`) ? stringOf(text) : text)

export const bytesOf = (text: string): number => encoder.encode(text).length

// internal

const encoder = new TextEncoder()

const stringOf = (text: string): string => {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === "string" ? value : text
  } catch {
    return text
  }
}
