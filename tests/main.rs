//! The one test binary; a module a subject.

<<<<<<< HEAD
mod flatten;
=======
mod architecture;
mod gate;
mod harness;
mod kills;
>>>>>>> kills
mod sandbox;
mod source;
mod truth;
