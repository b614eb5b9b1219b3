/**
 * Certificates for tests, made without a program of the system: an authority, and servers that it vouches for.
 */
import type { KeyObject } from "node:crypto"
import { generateKeyPairSync, randomBytes, sign } from "node:crypto"
import { isIP } from "node:net"

export interface Certificate {
  /** PEM. */
  readonly cert: string
  /** PEM. */
  readonly key: string
}

export interface Authority extends Certificate {
  /** For a server with these names and addresses. */
  readonly issue: (...names: ReadonlyArray<string>) => Certificate
}

export const authority = (): Authority => {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" })
  const name = `Test authority ${randomBytes(4).toString("hex")}`
  const common = { issuer: name, issuerKey: privateKey }
  return {
    ...pem(certificate({ ...common, subject: name, publicKey, extension: isAuthority }), privateKey),
    issue: (...names) => {
      const server = generateKeyPairSync("ec", { namedCurve: "P-256" })
      return pem(
        certificate({ ...common, subject: "server", publicKey: server.publicKey, extension: alternativeNames(names) }),
        server.privateKey
      )
    }
  }
}

// -----------------------------------------------------------------------------
// internal: X.509 in DER
// -----------------------------------------------------------------------------

const der = (tag: number, ...parts: ReadonlyArray<Uint8Array>): Buffer => {
  const content = Buffer.concat(parts)
  const { length } = content
  const lengths = length < 128 ? [length] : length < 256 ? [0x81, length] : [0x82, length >> 8, length & 255]
  return Buffer.concat([Buffer.from([tag, ...lengths]), content])
}

const sequence = (...parts: ReadonlyArray<Uint8Array>) => der(0x30, ...parts)
const oid = (hex: string) => der(0x06, Buffer.from(hex, "hex"))
const time = (date: Date) => der(0x18, Buffer.from(date.toISOString().replace(/[-:T]|\.\d+/g, "")))

const ecdsaWithSha256 = sequence(oid("2a8648ce3d040302"))
const nameOf = (text: string) => sequence(der(0x31, sequence(oid("550403"), der(0x0c, Buffer.from(text)))))

const isAuthority = sequence(
  oid("551d13"),
  der(0x01, Buffer.from([255])),
  der(0x04, sequence(der(0x01, Buffer.from([255]))))
)

const alternativeNames = (names: ReadonlyArray<string>) =>
  sequence(
    oid("551d11"),
    der(
      0x04,
      sequence(...names.map((name) =>
        isIP(name) === 4 ? der(0x87, Buffer.from(name.split(".").map(Number))) : der(0x82, Buffer.from(name))
      ))
    )
  )

const certificate = (options: {
  readonly issuer: string
  readonly issuerKey: KeyObject
  readonly subject: string
  readonly publicKey: KeyObject
  readonly extension: Uint8Array
}) => {
  const day = 86_400_000
  const content = sequence(
    der(0xa0, der(0x02, Buffer.from([2]))), // version 3
    der(0x02, Buffer.concat([Buffer.from([1]), randomBytes(8)])),
    ecdsaWithSha256,
    nameOf(options.issuer),
    sequence(time(new Date(Date.now() - day)), time(new Date(Date.now() + day))),
    nameOf(options.subject),
    options.publicKey.export({ type: "spki", format: "der" }),
    der(0xa3, sequence(options.extension))
  )
  return sequence(content, ecdsaWithSha256, der(0x03, Buffer.from([0]), sign("sha256", content, options.issuerKey)))
}

const pem = (certificate: Uint8Array, key: KeyObject): Certificate => ({
  cert: `-----BEGIN CERTIFICATE-----\n${
    Buffer.from(certificate).toString("base64").match(/.{1,64}/g)!.join("\n")
  }\n-----END CERTIFICATE-----\n`,
  key: String(key.export({ type: "pkcs8", format: "pem" }))
})
