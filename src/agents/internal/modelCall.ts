/**
 * A call of a model as it is recorded: what the program asks, and what the model answers. Both are JSON, so that the
 * process which calls the model needs neither the toolkits nor the Schemas of the program.
 */
import { AiError, type LanguageModel, Prompt, Response, Tool, Toolkit } from "effect/ai"
import * as Effect from "effect/Effect"
import * as JsonSchema from "effect/JsonSchema"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as SchemaRepresentation from "effect/SchemaRepresentation"
import * as Stream from "effect/Stream"
import { harmless } from "./errors.ts"

/** A tool that the model may call: what the program defines, or what the provider of the model has. */
export const OfferedTool = Schema.Union([
  Schema.TaggedStruct("Defined", {
    name: Schema.String,
    description: Schema.optionalKey(Schema.String),
    parameters: Schema.Json,
    /** Whether `parameters` was given as JSON Schema, which providers then send as it is. */
    dynamic: Schema.Boolean,
    strict: Schema.optionalKey(Schema.Boolean)
  }),
  Schema.TaggedStruct("OfProvider", {
    id: Schema.String,
    name: Schema.String,
    providerName: Schema.String,
    requiresHandler: Schema.Boolean,
    args: Schema.Json
  })
])

export const ModelCall = Schema.Struct({
  method: Schema.Literals(["generateText", "generateObject", "streamText"]),
  prompt: Schema.Json,
  tools: Schema.Array(OfferedTool),
  toolChoice: Schema.Json,
  toolCallValidation: Schema.optionalKey(Schema.Literals(["strict", "deferred"])),
  output: Schema.optionalKey(Schema.Struct({ name: Schema.String, schema: Schema.Json }))
})

export type ModelCall = typeof ModelCall.Type

export const ModelAnswer = Schema.Struct({
  content: Schema.Array(Response.AllParts()),
  /** What the call has cost, as the price of the model says. */
  cost: Schema.optionalKey(Schema.Number)
})

export type ModelAnswer = typeof ModelAnswer.Type

/** What the options of a provider say, as it is recorded. */
export const ofOptions = (method: "generateText" | "streamText", options: LanguageModel.ProviderOptions): ModelCall => {
  const { responseFormat: format } = options
  return {
    method: format.type === "json" ? "generateObject" : method,
    prompt: json(encodePrompt(storable(options.prompt))),
    tools: options.tools.map(offered),
    toolChoice: json(options.toolChoice),
    ...(options.toolCallValidation === undefined ? {} : { toolCallValidation: options.toolCallValidation }),
    ...(format.type === "json" ? { output: { name: format.objectName, schema: jsonSchemaOf(format.schema) } } : {})
  }
}

/** A conversation whose results of tools are JSON: Effect puts `undefined` into some. */
export const storable = (prompt: Prompt.Prompt): Prompt.Prompt =>
  Prompt.fromMessages(prompt.content.map((message) =>
    message.role === "tool"
      ? Prompt.makeMessage("tool", {
        options: message.options,
        content: message.content.map((part) => part.type === "tool-result" ? withJsonResult(part) : part)
      })
      : message
  ))

/** The parts of an answer as a provider returns them. */
export const partsOf = (answer: ModelAnswer): ReadonlyArray<Response.AllPartsEncoded> =>
  answer.content.map((part) => encodePart(part))

/**
 * Calls the model. Fails with what may be recorded: no headers, no addresses with keys in them. With `onText`, texts
 * are streamed whichever way the program asks, and each piece goes there before the next is read.
 */
export const run = (
  call: ModelCall,
  model: LanguageModel.LanguageModel,
  onText: ((text: string) => Effect.Effect<void>) | undefined
): Effect.Effect<ReadonlyArray<Response.AllParts<any>>, AiError.AiError> =>
  Effect.suspend(() => {
    const prompt = decodePrompt(call.prompt)
    const options = { prompt, ...toolOptions(call) }
    const { output } = call
    if (call.method === "streamText" || (output === undefined && onText !== undefined)) {
      const parts = model.streamText(options).pipe(
        Stream.tap((part) => part.type === "text-delta" && onText !== undefined ? onText(part.delta) : Effect.void),
        Stream.runCollect
      )
      return call.method === "streamText" ? Effect.map(parts, joined) : Effect.flatMap(parts, whole)
    }
    if (output === undefined) {
      return Effect.map(model.generateText(options), ({ content }) => content)
    }
    const schema = schemaOf(output.schema) as Schema.Codec<any, Record<string, any>>
    // What the provider has changed in the Schema, it changes back in the value: the program gets what it asked for.
    return Effect.map(
      model.generateObject({ ...options, objectName: output.name, schema }),
      ({ content, value }) => [
        Response.makePart("text", { text: JSON.stringify(Schema.encodeUnknownSync(schema)(value)) }),
        ...content.filter(({ type }) => type !== "text")
      ]
    )
  }).pipe(
    Effect.mapError(harmless)
  ) as Effect.Effect<ReadonlyArray<Response.AllParts<any>>, AiError.AiError>

/** Tokens of prompt and answer together; 0 if the provider does not say. */
export const usageOf = (answer: ModelAnswer): Response.Usage | undefined =>
  answer.content.find((part) => part.type === "finish")?.usage

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

const promptCodec = Schema.toCodecJson(Prompt.Prompt)
const encodePrompt = Schema.encodeSync(promptCodec)
const decodePrompt = Schema.decodeUnknownSync(promptCodec)
const encodePart = Schema.encodeSync(Response.AllParts())

const withJsonResult = ({ id, isFailure, name, options, providerExecuted, result }: Prompt.ToolResultPart) =>
  Prompt.makePart("tool-result", { id, isFailure, name, options, providerExecuted, result: json(result) })

/** Without what JSON does not have. */
const json = (value: unknown): Schema.Json => JSON.parse(JSON.stringify(value) ?? "null")

const offered = (tool: Tool.Any): typeof OfferedTool.Type => {
  if (Tool.isProviderDefined(tool)) {
    const { args, id, name, providerName, requiresHandler } = tool
    return { _tag: "OfProvider", id, name, providerName, requiresHandler, args: json(args) }
  }
  const description = Tool.getDescription(tool)
  const strict = Tool.getStrictMode(tool)
  return {
    _tag: "Defined",
    name: tool.name,
    parameters: json(Tool.getJsonSchema(tool)),
    dynamic: Tool.isDynamic(tool) && tool.jsonSchema !== undefined,
    ...(description === undefined ? {} : { description }),
    ...(strict === undefined ? {} : { strict })
  }
}

const toolOf = (offered: typeof OfferedTool.Type): Tool.Any => {
  if (offered._tag === "OfProvider") {
    return Tool.providerDefined({
      id: offered.id as `${string}.${string}`,
      customName: offered.name,
      providerName: offered.providerName,
      requiresHandler: offered.requiresHandler,
      args: Schema.Unknown,
      parameters: Schema.Unknown,
      success: Schema.Unknown,
      failure: Schema.Unknown
    })(offered.args as never) as Tool.Any
  }
  const { description, dynamic, name, parameters, strict } = offered
  const options = { ...(description === undefined ? {} : { description }), success: Schema.Unknown }
  const tool: Tool.Any = dynamic
    ? Tool.dynamic(name, { ...options, parameters: parameters as JsonSchema.JsonSchema })
    : Tool.make(name, { ...options, parameters: schemaOf(parameters) })
  return strict === undefined ? tool : (tool as Tool.Tool<string, any>).annotate(Tool.Strict, strict)
}

/** The model is asked which tools to call; the program calls them. */
const toolOptions = (call: ModelCall) =>
  call.tools.length === 0 ? {} : {
    toolkit: {
      tools: Toolkit.make(...call.tools.map(toolOf)).tools,
      handle: () => Effect.die(new Error("tools are called by the orchestration"))
    },
    toolChoice: call.toolChoice,
    disableToolCallResolution: true,
    ...(call.toolCallValidation === undefined ? {} : { toolCallValidation: call.toolCallValidation })
  }

const jsonSchemaOf = (schema: Schema.Top): Schema.Json => json(Tool.getJsonSchemaFromSchema(schema))

const schemaOf = (stored: Schema.Json): Schema.Top =>
  SchemaRepresentation.fromJsonSchemaDocument(
    JsonSchema.fromSchemaDraft2020_12(closed(stored) as JsonSchema.JsonSchema),
    { patterns: "apply" }
  )

/**
 * Effect writes `additionalProperties: true` for a Struct, which drops what it does not know, and reads it as a Schema
 * that keeps all. Closed objects are read as Structs again.
 */
const closed = (schema: Schema.Json): Schema.Json =>
  Array.isArray(schema) ? schema.map(closed) : typeof schema === "object" && schema !== null
    ? Object.fromEntries(
      Object.entries(schema).map(([key, value]) => [
        key,
        key === "additionalProperties" && value === true && "properties" in schema ? false : closed(value)
      ])
    )
    : schema

/** Joins the pieces of a text that follow each other: a program reads them at once anyway. */
const joined = (parts: ReadonlyArray<Response.AnyPart>): ReadonlyArray<Response.AnyPart> => {
  const result: Array<Response.AnyPart> = []
  for (const part of parts) {
    const last = Option.fromUndefinedOr(result.at(-1))
    if (isDelta(part) && Option.isSome(last) && last.value.type === part.type && last.value.id === part.id) {
      const { metadata, delta } = last.value as Response.TextDeltaPart
      const { id, type } = part
      result[result.length - 1] = Response.makePart(type, {
        id,
        delta: delta + part.delta,
        metadata: { ...metadata, ...part.metadata }
      })
    } else {
      result.push(part)
    }
  }
  return result
}

/** The parts of a stream as `generateText` returns them. */
const whole = (
  parts: ReadonlyArray<Response.AnyPart>
): Effect.Effect<ReadonlyArray<Response.AnyPart>, AiError.AiError> => {
  const broken = parts.find((part) => part.type === "error")
  if (broken !== undefined) {
    return AiError.make({
      module: "DurableModel",
      method: "generateText",
      reason: new AiError.InternalProviderError({ description: "the provider has broken off its answer" })
    })
  }
  return Effect.succeed(
    joined(parts).flatMap((part): ReadonlyArray<Response.AnyPart> =>
      part.type === "text-delta"
        ? [Response.makePart("text", { text: part.delta, metadata: part.metadata })]
        : part.type === "reasoning-delta"
        ? [Response.makePart("reasoning", { text: part.delta, metadata: part.metadata })]
        : /^(text|reasoning|tool-params)-/.test(part.type)
        ? []
        : [part]
    )
  )
}

const isDelta = (part: Response.AnyPart): part is Response.TextDeltaPart | Response.ReasoningDeltaPart =>
  part.type === "text-delta" || part.type === "reasoning-delta"
