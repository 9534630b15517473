import { toolOperations } from '../../api/tools/operations.ts';
import { inputSchema } from '../../api/tools/parameters.ts';
import { resourceTemplates } from '../../api/tools/resources.ts';
import { tools } from '../../api/tools/tool-server.ts';
import { code, type Page, page, table } from './markdown.ts';

interface Shown {
  readonly type?: string;
  readonly enum?: readonly string[];
  readonly anyOf?: readonly Shown[];
  readonly items?: Shown;
  readonly description?: string;
  readonly default?: unknown;
}

export function toolsPage(): Page {
  return page(
    'tools.md',
    'Tools',
    'api/tools',
    'The tool server speaks the Model Context Protocol at `/mcp`, on port `RUNLAKE_TOOLS_PORT`, or over standard input with `runlake tools --stdio`. ' +
      'A tool needs the permissions of the operations of the main API that it uses. Booleans may be sent as the texts `true` and `false`, lists and ' +
      'objects as JSON texts. Every result can have `note`; that of a failed call has `error`.',
    table(
      ['Method', 'Path', 'What it does'],
      toolOperations.map(({ method, path, summary }) => [method, code(path), summary]),
    ),
    table(
      ['Resource', 'Content'],
      resourceTemplates.map(({ uriTemplate, description }) => [code(uriTemplate), description ?? '']),
    ),
    ...tools.flatMap(({ name, description, parameters }) => [
      `## ${name}`,
      description,
      ...describeParameters(inputSchema(parameters)),
    ]),
  );
}

function describeParameters({ properties, required }: ReturnType<typeof inputSchema>): string[] {
  const rows = Object.entries(properties as Record<string, Shown>).map(([name, schema]) => [
    code(name),
    formatType(schema),
    required.includes(name) ? 'required' : schema.default === undefined ? '' : code(String(schema.default)),
    schema.description ?? '',
  ]);
  return rows.length === 0 ? [] : [table(['Parameter', 'Type', 'Default', 'Meaning'], rows)];
}

function formatType({ type, enum: words, anyOf: [first] = [], items }: Shown): string {
  if (first !== undefined) return formatType(first);
  if (words !== undefined) return words.map(code).join(', ');
  return items === undefined ? String(type) : `list of ${formatType(items)}`;
}
