import { type TNumberOptions, type TSchema, type TStringOptions, Type } from 'typebox';
import { type Setting, settings } from '../../infra/config/settings.ts';
import { code, type Page, page, table } from './markdown.ts';

export function configurationPage(): Page {
  const rows = Object.values<Setting>(settings).map(({ variable, schema, fallback, description, secret }) => [
    code(variable),
    valuesOf(schema),
    fallback === undefined ? 'not set' : `${code(String(fallback))}${inMebibytes(variable, fallback)}`,
    unitOf(variable),
    `${description}${secret ? ' **Secret**: never printed or logged.' : ''}`,
  ]);
  return page(
    'configuration.md',
    'Configuration',
    'infra/config/settings.ts',
    'Environment variables configure Runlake. It reads them once, at the start, and reports all errors together. ' +
      `There are ${rows.length} settings; other limits and intervals are constants in the code. An empty variable counts as not set. ` +
      '`runlake config` prints every setting with the source of its value. A variable that begins with `RUNLAKE_` and is not a ' +
      'setting is an error that names the nearest setting.',
    table(['Variable', 'Value', 'Default', 'Unit', 'Meaning'], rows),
  );
}

function valuesOf(schema: TSchema): string {
  if (Type.IsInteger(schema)) {
    const { minimum, maximum } = schema as TSchema as TNumberOptions;
    return `whole number, ${minimum} to ${maximum}`;
  }
  if (Type.IsBoolean(schema)) return '`true` or `false`';
  if (Type.IsUnion(schema)) {
    return schema.anyOf.map((choice) => ('const' in choice ? code(String(choice.const)) : '')).join(', ');
  }
  const { format, minLength, maxLength, pattern } = schema as TSchema as TStringOptions;
  if (format !== undefined) return format === 'uri' ? 'URL' : format;
  const length = maxLength === undefined ? '' : `, ${minLength ?? 0} to ${maxLength} characters`;
  return `text${length}${pattern === undefined ? '' : ` of the form ${code(String(pattern))}`}`;
}

function unitOf(variable: string): string {
  const [, unit] = /_(BYTES|MS|DAYS|HOURS|ROWS)$/.exec(variable) ?? [];
  return unit === 'MS' ? 'milliseconds' : (unit ?? '').toLowerCase();
}

function inMebibytes(variable: string, value: unknown): string {
  const mebibytes = Number(value) / 1024 ** 2;
  return variable.endsWith('_BYTES') && mebibytes >= 1 ? ` (${mebibytes} MiB)` : '';
}
