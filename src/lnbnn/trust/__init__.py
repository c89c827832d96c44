"""How far to believe an answer: calibration, evidence, evaluation, audit."""
