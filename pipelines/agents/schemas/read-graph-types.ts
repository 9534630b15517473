import { dirname } from 'node:path';
import type * as ts from 'typescript';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { ExportReference } from '../graphs/graphs-file.ts';
import type { GraphSchemas } from '../requests/schemas.ts';
import { buildJsonSchema, type JsonSchema, type TypeCheckContext } from './json-schema-of-type.ts';
import { findSubgraphs } from './subgraphs-in.ts';

/** Schemas of a graph, read from its TypeScript types. */
export interface TypedGraph {
  readonly schemas: GraphSchemas;
  /** Schemas of the graph's subgraphs, by namespace. */
  readonly subgraphs: Readonly<Record<string, GraphSchemas>>;
}

/**
 * Reads the schemas of a graph from the types of its module, with the compiler and the tsconfig.json of its project.
 *
 * @returns the schemas, and the files that they depend on.
 * @throws GRAPH_TYPES_UNREADABLE with the reason if the types do not describe a graph, and errors of the compiler.
 */
export function readGraphTypes(compiler: typeof ts, { path, name }: ExportReference): TypedGraph & { files: string[] } {
  const { options, configFile } = readCompilerOptions(compiler, path);
  const program = compiler.createProgram({ rootNames: [path], options });
  const checker = program.getTypeChecker();
  const source = program.getSourceFile(path);
  const module = source && checker.getSymbolAtLocation(source);
  if (source === undefined || module === undefined) throw createUnreadableTypesError(`${path} is not a module`);
  const exported = checker.getExportsOfModule(module).find((each) => each.name === name);
  if (exported === undefined) throw createUnreadableTypesError(`${path} exports no '${name}'`);
  const reading = { ts: compiler, checker, location: source };
  const schemas = readSchemas(checker.getTypeOfSymbolAtLocation(exported, source), reading);
  if (schemas === undefined) {
    throw createUnreadableTypesError(
      `the type of '${name}' in ${path} is not that of a graph: are the types of @langchain/langgraph installed in its project?`,
    );
  }
  const subgraphs: Record<string, GraphSchemas> = {};
  for (const [namespace, type] of findSubgraphs(exported, reading)) {
    const found = readSchemas(type, reading);
    if (found !== undefined) subgraphs[namespace] ??= found;
  }
  const files = program.getSourceFiles().map(({ fileName }) => fileName);
  return { schemas, subgraphs, files: configFile === undefined ? files : [...files, configFile] };
}

export function createUnreadableTypesError(reason: string): Error {
  return runlakeError('GRAPH_TYPES_UNREADABLE', { reason });
}

/** Reads the schemas of a compiled graph, a builder, or a function or promise of either; undefined for other types. */
function readSchemas(type: ts.Type, reading: TypeCheckContext): GraphSchemas | undefined {
  const graph = findCompiledType(type, reading);
  const input = graph && findPropertyType(graph, '~InputType', reading);
  const output = graph && findPropertyType(graph, '~OutputType', reading);
  if (graph === undefined || input === undefined || output === undefined) return undefined;
  const builder = findPropertyType(graph, 'builder', reading);
  // The state is the second type argument of StateGraph<Definition, State, …>. A graph without a builder has no state
  // type, so its output type is used.
  const state = builder && reading.checker.getTypeArguments(builder as ts.TypeReference)[1];
  const context = describeType(findContextType(graph, reading), reading);
  return {
    input_schema: describeType(input, reading),
    output_schema: describeType(output, reading),
    state_schema: describeType(state ?? output, reading),
    config_schema: context,
    context_schema: context,
  };
}

/** Returns the schema of a type; null for a missing type and for a type without any constraint. */
function describeType(type: ts.Type | undefined, reading: TypeCheckContext): JsonSchema | null {
  if (type === undefined) return null;
  const { $schema, ...schema } = buildJsonSchema(type, reading);
  const { type: kind, properties } = schema;
  const isEmpty = Object.keys(schema).length === 0 || (kind === 'object' && !hasKeys(properties));
  return isEmpty ? null : { $schema, ...schema };
}

function hasKeys(value: unknown): boolean {
  return typeof value === 'object' && value !== null && Object.keys(value).length > 0;
}

function findCompiledType(type: ts.Type, reading: TypeCheckContext, depth = 0): ts.Type | undefined {
  const { checker, ts } = reading;
  if ((type.flags & ts.TypeFlags.Any) !== 0 || depth > 4) return undefined;
  if (type.getProperty('lg_is_pregel') !== undefined) return type;
  const [call] = type.getCallSignatures();
  const compile = findPropertyType(type, 'compile', reading)?.getCallSignatures()[0];
  const awaited = checker.getAwaitedType(type);
  const next = call ?? compile;
  if (next !== undefined) return findCompiledType(next.getReturnType(), reading, depth + 1);
  return awaited === undefined || awaited === type ? undefined : findCompiledType(awaited, reading, depth + 1);
}

/** Returns the context type of a run: the type of `context` in the last overload of the graph's `withConfig`. */
function findContextType(graph: ts.Type, reading: TypeCheckContext): ts.Type | undefined {
  const [parameter] = findPropertyType(graph, 'withConfig', reading)?.getCallSignatures().at(-1)?.getParameters() ?? [];
  const options = parameter && reading.checker.getTypeOfSymbolAtLocation(parameter, reading.location);
  return options && findPropertyType(options.getNonNullableType(), 'context', reading)?.getNonNullableType();
}

function findPropertyType(type: ts.Type, name: string, { checker, location }: TypeCheckContext): ts.Type | undefined {
  const symbol = checker.getPropertyOfType(type, name);
  return symbol && checker.getTypeOfSymbolAtLocation(symbol, location);
}

function readCompilerOptions(compiler: typeof ts, path: string) {
  const configFile = compiler.findConfigFile(dirname(path), compiler.sys.fileExists);
  const { config } = configFile ? compiler.readConfigFile(configFile, compiler.sys.readFile) : { config: undefined };
  const given =
    configFile === undefined || config === undefined
      ? {}
      : compiler.parseJsonConfigFileContent(
          { ...config, files: [path], include: [] },
          compiler.sys,
          dirname(configFile),
        ).options;
  const options: ts.CompilerOptions = {
    target: compiler.ScriptTarget.ES2022,
    module: compiler.ModuleKind.ESNext,
    moduleResolution: compiler.ModuleResolutionKind.Bundler,
    ...given,
    noEmit: true,
    strict: true,
    skipLibCheck: true,
    allowImportingTsExtensions: true,
    composite: false,
    incremental: false,
    emitDeclarationOnly: false,
  };
  return { options, configFile };
}
