import type { FastifySchemaCompiler } from 'fastify';
import type { TSchema } from 'typebox';
import { Compile } from 'typebox/compile';
import { type FieldFault, fault } from '../../infra/errors/runlake-error.ts';

/** What `Errors` of a compiled schema yields; at most eight a value, so that a hostile body cannot make millions. */
interface SchemaFault {
  readonly keyword: string;
  readonly instancePath: string;
  readonly message: string;
  readonly params: Readonly<Record<string, unknown>>;
}

const places: Readonly<Record<string, string>> = { querystring: 'query', params: 'path', headers: 'header' };

/**
 * Compiles the schema of one part of a request into a check that changes nothing. It fails with INVALID_REQUEST, which lists
 * the faults in the form of SPEC 2.3.
 */
export const compileCheck: FastifySchemaCompiler<TSchema> = ({ schema, httpPart = 'body' }) => {
  const check = Compile(schema);
  const place = places[httpPart] ?? httpPart;
  return (value: unknown) =>
    check.Check(value)
      ? { value }
      : { error: fault('INVALID_REQUEST', {}, { fields: fieldFaults(check.Errors(value), place) }) };
};

function fieldFaults(faults: readonly SchemaFault[], place: string): FieldFault[] {
  return faults.flatMap(({ keyword, instancePath, message, params }) => {
    const path = [place, ...segmentsOf(instancePath)];
    if (keyword === 'required') {
      const missing = Array.isArray(params.requiredProperties) ? params.requiredProperties : [];
      return missing.map((name) => ({ loc: [...path, String(name)], msg: 'Field required', type: 'missing' }));
    }
    return [{ loc: path, msg: message, type: typeOf(keyword, params) }];
  });
}

/** The parts of a JSON pointer; numbers are indices. */
function segmentsOf(pointer: string): Array<string | number> {
  return pointer
    .split('/')
    .slice(1)
    .map((segment) =>
      /^\d{1,9}$/.test(segment) ? Number(segment) : segment.replaceAll('~1', '/').replaceAll('~0', '~'),
    );
}

function typeOf(keyword: string, params: Readonly<Record<string, unknown>>): string {
  if (keyword === 'type') return `${String(params.type)}_type`;
  if (keyword === 'format') return `${String(params.format).replaceAll('-', '_')}_format`;
  return keyword.replace(/^~/, '').replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}
