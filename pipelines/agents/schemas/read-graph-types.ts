import { dirname } from 'node:path';
import type * as ts from 'typescript';
import { fault } from '../../../infra/errors/runlake-error.ts';
import type { ExportReference } from '../graphs/graphs-file.ts';
import type { GraphSchemas } from '../requests/schemas.ts';
import { type JsonSchema, jsonSchemaOfType, type TypeReading } from './json-schema-of-type.ts';
import { subgraphsIn } from './subgraphs-in.ts';

/** What the compiler knows of a graph. */
export interface TypedGraph {
  readonly schemas: GraphSchemas;
  /** Of its subgraphs, by namespace. */
  readonly subgraphs: Readonly<Record<string, GraphSchemas>>;
}

/**
 * Reads the schemas of a graph from the types of its module, with the compiler of the graph's project and under its tsconfig.json.
 *
 * @returns them, and the files that they came from.
 * @throws GRAPH_TYPES_UNREADABLE with the reason why the types tell nothing, and what the compiler throws.
 */
export function readGraphTypes(compiler: typeof ts, { path, name }: ExportReference): TypedGraph & { files: string[] } {
  const { options, configFile } = compilerOptions(compiler, path);
  const program = compiler.createProgram({ rootNames: [path], options });
  const checker = program.getTypeChecker();
  const source = program.getSourceFile(path);
  const module = source && checker.getSymbolAtLocation(source);
  if (source === undefined || module === undefined) throw unreadable(`${path} is not a module`);
  const exported = checker.getExportsOfModule(module).find((each) => each.name === name);
  if (exported === undefined) throw unreadable(`${path} exports no '${name}'`);
  const reading = { ts: compiler, checker, place: source };
  const schemas = schemasOfGraph(checker.getTypeOfSymbolAtLocation(exported, source), reading);
  if (schemas === undefined) {
    throw unreadable(
      `the type of '${name}' in ${path} is not that of a graph: are the types of @langchain/langgraph installed in its project?`,
    );
  }
  const subgraphs: Record<string, GraphSchemas> = {};
  for (const [namespace, type] of subgraphsIn(exported, reading)) {
    const found = schemasOfGraph(type, reading);
    if (found !== undefined) subgraphs[namespace] ??= found;
  }
  const files = program.getSourceFiles().map(({ fileName }) => fileName);
  return { schemas, subgraphs, files: configFile === undefined ? files : [...files, configFile] };
}

export function unreadable(reason: string): Error {
  return fault('GRAPH_TYPES_UNREADABLE', { reason });
}

/** Of a compiled graph, a builder, or a function or promise of either; undefined for other types. */
function schemasOfGraph(type: ts.Type, reading: TypeReading): GraphSchemas | undefined {
  const graph = compiledType(type, reading);
  const input = graph && propertyOf(graph, '~InputType', reading);
  const output = graph && propertyOf(graph, '~OutputType', reading);
  if (graph === undefined || input === undefined || output === undefined) return undefined;
  const builder = propertyOf(graph, 'builder', reading);
  // StateGraph<Definition, State, …>; a graph that no builder made has no other state than its output.
  const state = builder && reading.checker.getTypeArguments(builder as ts.TypeReference)[1];
  const context = told(contextOf(graph, reading), reading);
  return {
    input_schema: told(input, reading),
    output_schema: told(output, reading),
    state_schema: told(state ?? output, reading),
    config_schema: context,
    context_schema: context,
  };
}

/** Null for a type that says nothing. */
function told(type: ts.Type | undefined, reading: TypeReading): JsonSchema | null {
  if (type === undefined) return null;
  const { $schema, ...schema } = jsonSchemaOfType(type, reading);
  const { type: kind, properties } = schema;
  const saysNothing = Object.keys(schema).length === 0 || (kind === 'object' && !hasKeys(properties));
  return saysNothing ? null : { $schema, ...schema };
}

function hasKeys(value: unknown): boolean {
  return typeof value === 'object' && value !== null && Object.keys(value).length > 0;
}

function compiledType(type: ts.Type, reading: TypeReading, depth = 0): ts.Type | undefined {
  const { checker, ts } = reading;
  if ((type.flags & ts.TypeFlags.Any) !== 0 || depth > 4) return undefined;
  if (type.getProperty('lg_is_pregel') !== undefined) return type;
  const [call] = type.getCallSignatures();
  const compile = propertyOf(type, 'compile', reading)?.getCallSignatures()[0];
  const awaited = checker.getAwaitedType(type);
  const next = call ?? compile;
  if (next !== undefined) return compiledType(next.getReturnType(), reading, depth + 1);
  return awaited === undefined || awaited === type ? undefined : compiledType(awaited, reading, depth + 1);
}

/** What the config of a run may carry: the last form of the graph's own `withConfig` names it. */
function contextOf(graph: ts.Type, reading: TypeReading): ts.Type | undefined {
  const [parameter] = propertyOf(graph, 'withConfig', reading)?.getCallSignatures().at(-1)?.getParameters() ?? [];
  const options = parameter && reading.checker.getTypeOfSymbolAtLocation(parameter, reading.place);
  return options && propertyOf(options.getNonNullableType(), 'context', reading)?.getNonNullableType();
}

function propertyOf(type: ts.Type, name: string, { checker, place }: TypeReading): ts.Type | undefined {
  const symbol = checker.getPropertyOfType(type, name);
  return symbol && checker.getTypeOfSymbolAtLocation(symbol, place);
}

function compilerOptions(compiler: typeof ts, path: string) {
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
