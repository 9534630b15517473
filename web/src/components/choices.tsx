import { Button } from './button.tsx';
import './choices.css';

/** A row of buttons, of which one is pressed. */
export function Choices<T extends string | boolean | undefined>({
  label,
  choices,
  chosen,
  onChoose,
}: {
  readonly label: string;
  readonly choices: readonly { readonly value: T; readonly label: string; readonly disabled?: boolean }[];
  readonly chosen: T;
  readonly onChoose: (value: T) => void;
}) {
  return (
    <fieldset className="choices">
      <legend className="visually-hidden">{label}</legend>
      {choices.map(({ value, label: text, disabled }) => (
        <Button key={text} aria-pressed={value === chosen} disabled={disabled} onClick={() => onChoose(value)}>
          {text}
        </Button>
      ))}
    </fieldset>
  );
}
