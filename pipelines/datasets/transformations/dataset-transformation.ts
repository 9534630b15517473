import { runlakeError } from '../../../infra/errors/runlake-error.ts';

/**
 * The supported types, in the order in which they are applied. The type `extract_tools_from_run` of the public API has no
 * published definition.
 */
export const transformationTypes = [
  'convert_to_openai_message',
  'convert_to_openai_tool',
  'remove_system_messages',
  'remove_extra_fields',
] as const;
type TransformationType = (typeof transformationTypes)[number];

/** A change of a value in the inputs or outputs of new examples. */
export interface DatasetTransformation {
  /** `inputs` or `outputs`, then the names of members down to the value. */
  readonly path: string[];
  readonly transformation_type: TransformationType;
}

/** Checks the transformations that a client sent for a dataset. @throws BAD_REQUEST */
export function checkTransformations(
  transformations: readonly { readonly path: readonly string[]; readonly transformation_type: string }[],
): readonly DatasetTransformation[] {
  return transformations.map(({ path, transformation_type: type }, index) => {
    const refuse = (reason: string) => runlakeError('BAD_REQUEST', { reason: `transformations[${index}]: ${reason}` });
    if (!isSupported(type)) {
      throw refuse(
        `the type ${JSON.stringify(type)} is not supported. Supported types: ${transformationTypes.join(', ')}.`,
      );
    }
    const [document, ...members] = path;
    if (document !== 'inputs' && document !== 'outputs')
      throw refuse('the path must start with "inputs" or "outputs".');
    if (type === 'convert_to_openai_tool' && (document !== 'inputs' || members.length !== 1)) {
      throw refuse(`the path of ${type} must be "inputs" and one name.`);
    }
    return { path: [...path], transformation_type: type };
  });
}

const isSupported = (type: string): type is TransformationType =>
  transformationTypes.includes(type as TransformationType);
