/**
 * The object store: S3, or a server that speaks its protocol. Objects are never overwritten with other content.
 */
import {
  CreateBucketCommand,
  GetObjectCommand,
  ListObjectsV2Command,
  PutObjectCommand,
  S3Client
} from "@aws-sdk/client-s3"
import { Context, Data, Effect, Layer, Option } from "effect"
import * as Settings from "./settings.ts"

export class StoreTrouble extends Data.TaggedError("StoreTrouble")<{
  readonly operation: string
  readonly key: string
  readonly cause: unknown
}> {
  override get message() {
    return `${this.operation} ${this.key}: ${this.cause instanceof Error ? this.cause.message : String(this.cause)}`
  }
}

export class ObjectStore extends Context.Service<ObjectStore, {
  /** Stores an object; returns its address, `s3://bucket/key`. */
  readonly put: (key: string, body: Uint8Array, type: string) => Effect.Effect<string, StoreTrouble>
  /** The content of an object by its address. */
  readonly get: (uri: string) => Effect.Effect<Uint8Array, StoreTrouble>
  /** Addresses of all objects whose key begins with the prefix. */
  readonly list: (prefix: string) => Effect.Effect<ReadonlyArray<string>, StoreTrouble>
  /** For development: creates the bucket if it is missing. */
  readonly createBucket: Effect.Effect<void, StoreTrouble>
}>()("examples/lite/ObjectStore") {}

export const layer = Layer.effect(
  ObjectStore,
  Effect.gen(function*() {
    const bucket = yield* Settings.bucket
    const endpoint = Option.getOrUndefined(yield* Settings.s3Endpoint)
    const client = yield* Effect.acquireRelease(
      Effect.sync(() =>
        // Servers other than AWS have no host name for each bucket.
        new S3Client(endpoint === undefined ? {} : { endpoint, forcePathStyle: true })
      ),
      (client) => Effect.sync(() => client.destroy())
    )
    const attempt = <A>(operation: string, key: string, run: () => Promise<A>) =>
      Effect.tryPromise({ try: run, catch: (cause) => new StoreTrouble({ operation, key, cause }) })
    const root = `s3://${bucket}/`

    return ObjectStore.of({
      put: (key, body, type) =>
        attempt(
          "put",
          key,
          () => client.send(new PutObjectCommand({ Bucket: bucket, Key: key, Body: body, ContentType: type }))
        ).pipe(
          Effect.as(root + key)
        ),
      get: (uri) =>
        attempt("get", uri, async () => {
          if (!uri.startsWith(root)) throw new Error(`not in the bucket ${bucket}`)
          const { Body } = await client.send(new GetObjectCommand({ Bucket: bucket, Key: uri.slice(root.length) }))
          return await Body!.transformToByteArray()
        }),
      list: (prefix) =>
        attempt("list", prefix, async () => {
          const uris: Array<string> = []
          let after: string | undefined
          do {
            const page = await client.send(
              new ListObjectsV2Command({ Bucket: bucket, Prefix: prefix, ContinuationToken: after })
            )
            for (const { Key } of page.Contents ?? []) uris.push(root + Key!)
            after = page.NextContinuationToken
          } while (after !== undefined)
          return uris
        }),
      createBucket: attempt("create bucket", bucket, () => client.send(new CreateBucketCommand({ Bucket: bucket })))
        .pipe(
          Effect.catchIf(({ cause }) => cause instanceof Error && existing.has(cause.name), () => Effect.void),
          Effect.asVoid
        )
    })
  })
)

const existing = new Set(["BucketAlreadyOwnedByYou", "BucketAlreadyExists"])
