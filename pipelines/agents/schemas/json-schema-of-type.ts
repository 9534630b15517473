import type * as ts from 'typescript';

export type JsonSchema = { [keyword: string]: unknown };

/** The TypeScript compiler of the project, with a type checker. */
export interface TypeCheckContext {
  readonly ts: typeof ts;
  readonly checker: ts.TypeChecker;
  /** Source-code node at which types are resolved. */
  readonly location: ts.Node;
}

/** Limits of a schema; a type beyond them is `{}`, which accepts any value. */
const maxDepth = 24;
const maxParts = 5_000;
const draftUri = 'http://json-schema.org/draft-07/schema#';
/** Object types whose JSON form does not follow from their properties. */
const opaqueTypes = new Set([
  'Map',
  'Set',
  'WeakMap',
  'WeakSet',
  'Promise',
  'RegExp',
  'Uint8Array',
  'ArrayBuffer',
  'Buffer',
]);

/** Schema of a message in the API, which differs from the properties of the message class. */
const messageSchema: JsonSchema = {
  type: 'object',
  properties: {
    type: { type: 'string' },
    content: { anyOf: [{ type: 'string' }, { type: 'array', items: { type: 'object' } }] },
    id: { type: 'string' },
    name: { type: 'string' },
    additional_kwargs: { type: 'object' },
    response_metadata: { type: 'object' },
  },
  required: ['content'],
};

/**
 * Converts a TypeScript type to the JSON Schema of its JSON form. Functions are omitted; types without an equivalent
 * become `{}`; recursive types become `definitions`.
 */
export function buildJsonSchema(type: ts.Type, reading: TypeCheckContext): JsonSchema {
  const reader = new TypeReader(reading);
  const schema = reader.readType(type) ?? {};
  return {
    $schema: draftUri,
    ...schema,
    ...(Object.keys(reader.definitions).length > 0 && { definitions: reader.definitions }),
  };
}

class TypeReader {
  readonly definitions: Record<string, JsonSchema> = {};
  readonly #reading: TypeCheckContext;
  readonly #open = new Map<ts.Type, string | undefined>();
  #parts = 0;
  #depth = 0;

  constructor(reading: TypeCheckContext) {
    this.#reading = reading;
  }

  /** Returns the schema of a type; undefined for types without a JSON form, such as functions. */
  readType(type: ts.Type): JsonSchema | undefined {
    if (this.#depth >= maxDepth) return {};
    this.#depth += 1;
    const schema = this.#read(type);
    this.#depth -= 1;
    return schema;
  }

  #read(type: ts.Type): JsonSchema | undefined {
    const { ts, checker } = this.#reading;
    const { flags } = type;
    const is = (mask: ts.TypeFlags) => (flags & mask) !== 0;
    this.#parts += 1;
    if (this.#parts > maxParts) return {};
    if (is(ts.TypeFlags.Any | ts.TypeFlags.Unknown)) return {};
    if (is(ts.TypeFlags.Undefined | ts.TypeFlags.Void | ts.TypeFlags.Never | ts.TypeFlags.ESSymbolLike))
      return undefined;
    if (type.isUnion()) return this.#union(type);
    if (is(ts.TypeFlags.Null)) return { type: 'null' };
    if (type.isStringLiteral() || type.isNumberLiteral()) return createLiteralSchema([type.value]);
    if (is(ts.TypeFlags.BooleanLiteral)) return createLiteralSchema([checker.typeToString(type) === 'true']);
    if (is(ts.TypeFlags.StringLike)) return { type: 'string' };
    if (is(ts.TypeFlags.NumberLike)) return { type: 'number' };
    if (is(ts.TypeFlags.BooleanLike)) return { type: 'boolean' };
    if (type.isIntersection()) {
      // A branded string or number is a plain string or number in JSON.
      const plain = type.types.find((each) => (each.flags & (ts.TypeFlags.StringLike | ts.TypeFlags.NumberLike)) !== 0);
      return plain === undefined ? this.#object(type) : this.readType(plain);
    }
    if (is(ts.TypeFlags.Object)) return this.#object(type);
    const constraint = checker.getBaseConstraintOfType(type);
    return constraint === undefined || constraint === type ? {} : this.readType(constraint);
  }

  #union(type: ts.UnionType): JsonSchema | undefined {
    const { checker } = this.#reading;
    // Omit `Overwrite`: only nodes use it, to bypass the reducer.
    const members = type.types.filter((each) => each.getProperty('__overwrite__') === undefined);
    const isList = (each: ts.Type) => checker.isArrayType(each);
    // If one alternative of the union is a message, omit all other alternatives, such as a string or a pair.
    const message = members.find((each) => this.#isMessage(isList(each) ? this.#getElementType(each) : each));
    if (message !== undefined) {
      const isMessageOrUnion = (each: ts.Type) =>
        this.#isMessage(each) || (each.isUnion() && each.types.some(isMessageOrUnion));
      const lists = members.some((each) => isList(each) && isMessageOrUnion(this.#getElementType(each)));
      return lists ? { type: 'array', items: this.#message() } : this.#message();
    }
    const schemas = members.map((each) => this.readType(each)).filter((each) => each !== undefined);
    if (schemas.some((each) => Object.keys(each).length === 0)) return {};
    const constants = schemas.filter((each) => 'const' in each).map((each) => each.const as Literal);
    const rest = schemas.filter((each) => !('const' in each));
    const booleans = constants.filter((each) => typeof each === 'boolean');
    const others = constants.filter((each) => typeof each !== 'boolean');
    if (booleans.length === 2) rest.push({ type: 'boolean' });
    else if (booleans.length === 1) rest.push(createLiteralSchema(booleans));
    if (others.length > 0) rest.unshift(createLiteralSchema(others));
    return rest.length > 1 ? { anyOf: rest } : rest[0];
  }

  #object(type: ts.Type): JsonSchema | undefined {
    const { ts, checker } = this.#reading;
    if (this.#isMessage(type)) return this.#message();
    const name = type.symbol?.name;
    if (name === 'Date') return { type: 'string', format: 'date-time' };
    if (opaqueTypes.has(name ?? '')) return {};
    if (checker.isTupleType(type)) return this.#tuple(type as ts.TypeReference);
    if (checker.isArrayType(type)) return { type: 'array', items: this.readType(this.#getElementType(type)) ?? {} };
    if (this.#open.has(type)) return this.#referTo(type);
    if (type.getCallSignatures().length > 0 || type.getConstructSignatures().length > 0) return undefined;
    this.#open.set(type, undefined);
    const schema = this.#properties(
      type,
      (symbol) => (ts.getCombinedModifierFlags(symbol) & getNonPublicModifiers(ts)) === 0,
    );
    const definition = this.#open.get(type);
    this.#open.delete(type);
    if (definition === undefined) return schema;
    this.definitions[definition] = schema;
    return { $ref: `#/definitions/${definition}` };
  }

  #tuple(type: ts.TypeReference): JsonSchema {
    const { checker } = this.#reading;
    const { minLength, hasRestElement } = type.target as ts.TupleType;
    const items = checker.getTypeArguments(type).map((each) => this.readType(each) ?? {});
    if (hasRestElement) return { type: 'array', items: {} };
    return { type: 'array', items, minItems: minLength, maxItems: items.length };
  }

  #properties(type: ts.Type, isShown: (declaration: ts.Declaration) => boolean): JsonSchema {
    const { ts, checker, location } = this.#reading;
    const properties: Record<string, JsonSchema> = {};
    const required: string[] = [];
    for (const symbol of checker.getPropertiesOfType(type)) {
      const isHidden = /^(?:__@|#)/.test(symbol.name) || symbol.declarations?.some((each) => !isShown(each));
      if (isHidden) continue;
      const held = checker.getTypeOfSymbolAtLocation(symbol, location);
      const schema = this.readType(held);
      if (schema === undefined) continue;
      const description = ts.displayPartsToString(symbol.getDocumentationComment(checker)).trim();
      properties[symbol.name] = description === '' ? schema : { ...schema, description };
      const isOptional = (held.isUnion() ? held.types : [held]).some(
        (each) => (each.flags & ts.TypeFlags.Undefined) !== 0,
      );
      if ((symbol.flags & ts.SymbolFlags.Optional) === 0 && !isOptional) required.push(symbol.name);
    }
    const index = checker.getIndexInfoOfType(type, ts.IndexKind.String);
    return {
      type: 'object',
      ...((index === undefined || Object.keys(properties).length > 0) && { properties }),
      ...(required.length > 0 && { required }),
      ...(index && { additionalProperties: this.readType(index.type) ?? {} }),
    };
  }

  #referTo(type: ts.Type): JsonSchema {
    const known = this.#open.get(type);
    if (known !== undefined) return { $ref: `#/definitions/${known}` };
    const given = (type.aliasSymbol?.name ?? type.symbol?.name ?? '').replaceAll(/\W/g, '');
    const base = given === '' || given.startsWith('__') ? 'Recursive' : given;
    let name = base;
    const usedNames = new Set([...Object.keys(this.definitions), ...this.#open.values()]);
    for (let count = 2; usedNames.has(name); count += 1) name = `${base}${count}`;
    this.#open.set(type, name);
    return { $ref: `#/definitions/${name}` };
  }

  #getElementType(type: ts.Type): ts.Type {
    return this.#reading.checker.getTypeArguments(type as ts.TypeReference)[0] ?? type;
  }

  #message(): JsonSchema {
    this.definitions.BaseMessage ??= messageSchema;
    return { $ref: '#/definitions/BaseMessage' };
  }

  /** Returns true if the type is a message class of LangChain, or derived from one. */
  #isMessage(type: ts.Type): boolean {
    if (type.isUnion()) return type.types.length > 0 && type.types.every((each) => this.#isMessage(each));
    if (!/Message(?:Chunk)?$/.test(type.symbol?.name ?? '')) return false;
    return type.getProperty('lc_namespace') !== undefined && type.getProperty('content') !== undefined;
  }
}

type Literal = string | number | boolean;

/** Returns a schema for one or several literals, with `type` if all have the same type. */
function createLiteralSchema(values: readonly Literal[]): JsonSchema {
  const [type, ...others] = new Set(values.map((value) => typeof value));
  return {
    ...(others.length === 0 && { type }),
    ...(values.length === 1 ? { const: values[0] } : { enum: values }),
  };
}

function getNonPublicModifiers(compiler: typeof ts): ts.ModifierFlags {
  return compiler.ModifierFlags.Private | compiler.ModifierFlags.Protected;
}
